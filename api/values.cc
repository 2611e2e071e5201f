// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "sheaf/internal/values.h"

#include "api/failures.h"
#include "api/process.h"
#include "sheaf/object_ref.h"

namespace sheaf::inline v1::internal {
namespace {

// The last views of this thread: their memory serves the next Get.
thread_local std::vector<ObjectView> spare_views;

std::vector<ObjectView>& ViewsIn(void** storage) {
  return *reinterpret_cast<std::vector<ObjectView>*>(storage);
}
const std::vector<ObjectView>& ViewsIn(void* const* storage) {
  return *reinterpret_cast<const std::vector<ObjectView>*>(storage);
}
static_assert(sizeof(std::vector<ObjectView>) == 3 * sizeof(void*));

const ObjectView& ViewOf(const Source* source) {
  return *reinterpret_cast<const ObjectView*>(source);
}

// What keeps the bytes of a view in place.
struct Pinned {
  Buffer keep;
  ObjectHandle handle;
};

Failure FailureOf(ErrorInfo info) { return std::make_shared<const ErrorInfo>(std::move(info)); }

}  // namespace

std::string ToHex(RawId id) { return ObjectId{id.maker, id.sequence}.ToHex(); }

void Retain(ObjectEntry* entry) noexcept {
  ObjectHandle(entry).Release();  // Counts one, and gives it away.
}
void Drop(ObjectEntry* entry) noexcept { ObjectHandle::Adopt(entry); }
RawId IdOf(const ObjectEntry* entry) noexcept {
  ObjectHandle handle = ObjectHandle::Adopt(const_cast<ObjectEntry*>(entry));
  const ObjectId id = handle.id();
  handle.Release();
  return PublicId(id);
}

std::shared_ptr<const void> PinSource(const Source* source) {
  const ObjectView& view = ViewOf(source);
  if (view.keep.data() == nullptr && !view.handle) return nullptr;
  return std::make_shared<const Pinned>(Pinned{view.keep, view.handle});
}

Handle ReferenceIn(const Source* source, uint32_t index, RawId id) {
  const ObjectView& view = ViewOf(source);
  const ObjectId wanted{id.maker, id.sequence};
  if (index < view.nested.size() && view.nested[index].id() == wanted)
    return PublicHandle(view.nested[index]);
  for (const ObjectHandle& nested : view.nested) {
    if (nested.id() == wanted) return PublicHandle(nested);
  }
  absl::StatusOr<ObjectHandle> handle = TheRuntime().HandleFor(wanted);
  if (!handle.ok())
    throw SerializationError("a value names object " + wanted.ToHex() + " without holding it");
  return PublicHandle(*std::move(handle));
}

Handle PutBytes(std::string_view bytes) {
  return PublicHandle(ValueOrThrow(TheRuntime().Put(bytes), ErrorKind::kObjectStoreFull));
}

Handle PutValue(const Encoder& value) {
  const std::span<const ObjectHandle> nested = CoreHandles(value.nested());
  if (!value.has_buffers() && value.body_bytes() <= kSmallValueBytes) {
    return PublicHandle(ValueOrThrow(TheRuntime().Put({value.body(), value.body_bytes()}, nested),
                                     ErrorKind::kObjectStoreFull));
  }
  const size_t size = value.size();
  if (size <= kSmallValueBytes) {
    std::string bytes(size, '\0');
    value.CopyTo(bytes.data());
    return PublicHandle(ValueOrThrow(TheRuntime().Put(bytes, nested), ErrorKind::kObjectStoreFull));
  }
  Runtime& runtime = TheRuntime();
  MutableBuffer buffer = ValueOrThrow(runtime.Create(size, DeadlineAfter(kForever), nested),
                                      ErrorKind::kObjectStoreFull);
  value.CopyTo(reinterpret_cast<char*>(buffer.data()), buffer.pages() == Pages::kCold);
  return PublicHandle(
      ValueOrThrow(runtime.Seal(std::move(buffer), nested), ErrorKind::kObjectStoreFull));
}

Views::Views(std::span<const Handle> objects, Timeout timeout) {
  auto* views = new (storage_) std::vector<ObjectView>(std::move(spare_views));
  for (const Handle& object : objects) {
    if (!object) {
      failure_ = FailureOf({ErrorKind::kInvalidArgument, "an empty ObjectRef has no value"});
      return;
    }
  }
  Runtime* runtime = current_runtime.load(std::memory_order_acquire);
  if (runtime == nullptr) {
    failure_ = FailureOf({ErrorKind::kSystem, "sheaf::Init was not called in this process"});
    return;
  }
  const absl::Status status = runtime->Get(CoreHandles(objects), DeadlineAfter(timeout), views);
  if (!status.ok()) [[unlikely]]
    failure_ = FailureOf(InfoOf(status, ErrorKind::kObjectStoreFull));
}

Views::~Views() {
  std::vector<ObjectView>& views = ViewsIn(storage_);
  if (views.capacity() <= 64) {
    views.clear();
    spare_views = std::move(views);
  }
  std::destroy_at(&views);
}

bool Views::has_value(size_t index) const { return ViewsIn(storage_)[index].error == nullptr; }
std::string_view Views::bytes(size_t index) const { return ViewsIn(storage_)[index].bytes; }
const Source* Views::source(size_t index) const {
  return reinterpret_cast<const Source*>(&ViewsIn(storage_)[index]);
}
ErrorInfo Views::error(size_t index) const { return InfoOf(*ViewsIn(storage_)[index].error); }

std::vector<size_t> WaitReady(std::span<const Handle> objects, size_t num_returns, Timeout timeout,
                              bool fetch_local) {
  for (const Handle& object : objects) RequireHandle(object);
  if (num_returns > objects.size()) {
    throw InvalidArgumentError("sheaf::Wait for " + std::to_string(num_returns) + " of " +
                               std::to_string(objects.size()) + " references");
  }
  absl::StatusOr<std::vector<size_t>> result =
      TheRuntime().Wait(CoreHandles(objects), num_returns, DeadlineAfter(timeout), fetch_local);
  ThrowIfFailed(result.status());
  return *std::move(result);
}

bool IsReady(const Handle& object) {
  RequireHandle(object);
  return TheRuntime().IsReady(CoreHandle(object));
}

Building::Building(size_t bytes) {
  buffer_ = new MutableBuffer(ValueOrThrow(TheRuntime().Create(bytes, DeadlineAfter(kForever)),
                                           ErrorKind::kObjectStoreFull));
  static_cast<MutableBuffer*>(buffer_)->Warm();
}
Building::Building(Building&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
Building::~Building() { delete static_cast<MutableBuffer*>(buffer_); }
char* Building::data() const {
  return reinterpret_cast<char*>(static_cast<MutableBuffer*>(buffer_)->data());
}
Handle Building::Seal() {
  if (buffer_ == nullptr) throw InvalidArgumentError("an array is sealed once");
  const std::unique_ptr<MutableBuffer> buffer(
      static_cast<MutableBuffer*>(std::exchange(buffer_, nullptr)));
  return PublicHandle(
      ValueOrThrow(TheRuntime().Seal(std::move(*buffer)), ErrorKind::kObjectStoreFull));
}

}  // namespace sheaf::inline v1::internal
