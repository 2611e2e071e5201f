// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/parallel_copy.h"
#include "worker/limits.h"
#include "worker/runtime_gathering.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

// For room in the store. The raylet says when it was in vain: later than this while its disk goes on
// (StoreOptions::waits_for_slow_disk).
constexpr Nanos kStoreWait = 30 * kSecond;
constexpr Nanos kStoreAnswer = 330 * kSecond;

std::vector<ObjectId> IdsOf(std::span<const ObjectHandle> handles) {
  std::vector<ObjectId> ids;
  ids.reserve(handles.size());
  for (const ObjectHandle& handle : handles) ids.push_back(handle.id());
  return ids;
}

// Uses of the entries, as a value holds its nested references.
std::vector<ObjectEntry*> UsesOf(ReferenceTable& references,
                                 std::span<const ObjectHandle> handles) {
  std::vector<ObjectEntry*> out;
  out.reserve(handles.size());
  for (const ObjectHandle& handle : handles) {
    references.AddUse(*handle.entry());
    out.push_back(handle.entry());
  }
  return out;
}

}  // namespace

void RuntimeImpl::Free(ObjectId id, ObjectLocation location) { store_->Free(id, location); }

ObjectLocation RuntimeImpl::Promote(ObjectId id, std::string_view bytes,
                                    std::span<const ObjectId> nested) {
  ObjectSpec spec;
  spec.id = id;
  spec.size_bytes = bytes.size();
  spec.nested = nested;
  absl::StatusOr<ObjectLocation> location = store_->Put(spec, bytes);
  if (location.ok()) return *location;
  store_->CancelCreate(id);  // Only wanted now; the owner answers for it meanwhile.
  return {};
}

absl::StatusOr<ObjectHandle> RuntimeImpl::PutInStore(std::string_view bytes,
                                                     std::span<const ObjectHandle> nested) {
  const ObjectId id = NextStoredName();
  absl::StatusOr<ObjectLocation> location = StoreValue(id, 0, bytes, nested);
  if (!location.ok()) return location.status();
  Lock lock(*this);
  ObjectEntry* entry = owner_->references.NewOwned(id);
  ObjectHandle handle(entry);
  owner_->references.SetStored(*entry, *location, bytes.size(), UsesOf(owner_->references, nested));
  return handle;
}

std::optional<ObjectLocation> RuntimeImpl::StoreIfBehind(const CallExecution& call, ObjectId id,
                                                         std::string_view bytes,
                                                         std::span<const ObjectHandle> nested) {
  if (!executor_->some_owner_behind()) [[likely]]
    return std::nullopt;
  {
    Lock lock(*this);
    if (!executor_->IsOwnerBehind(call)) return std::nullopt;
  }
  absl::StatusOr<ObjectLocation> location = StoreValue(id, call.attempt(), bytes, nested);
  if (!location.ok()) return std::nullopt;
  return *location;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::Put(std::string_view bytes,
                                              std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  if (bytes.size() <= kInlineValue) {
    Lock lock(*this);
    if (owner_->references.HasRoomFor(bytes.size())) [[likely]] {
      ObjectEntry* entry =
          owner_->references.NewOwned(ObjectId::Make(self_, owner_->references.NextSequence(), 1));
      ObjectHandle handle(entry);
      owner_->references.SetValue(*entry, bytes, UsesOf(owner_->references, nested));
      CountPut(&object_counts_.puts_private, bytes.size());
      return handle;
    }
  }
  return PutInStore(bytes, nested);
}

absl::StatusOr<MutableBuffer> RuntimeImpl::CreateNamed(Lock& lock, ObjectSpec& spec,
                                                       Nanos deadline) {
  const Nanos now = clock_.Now();
  spec.wait = std::clamp<Nanos>(deadline - now, kMillisecond, kStoreWait);
  deadline = std::min(deadline, now + kStoreAnswer);
  if (spec.size_bytes >= kDedicatedBytes) {
    // What was dropped before this goes first, so that its warm pages can be had again.
    owner_->references.CollectDropped(ReferenceTable::kIdleSlice);
    store_->Flush();
  }
  absl::StatusOr<MutableBuffer> buffer = store_->Create(spec);
  if (buffer.ok() || !absl::IsUnavailable(buffer.status())) return buffer;
  store_->Flush();
  uint64_t seen = store_->room_version();
  const auto created = [&] {
    if (store_->room_version() == seen) return false;
    seen = store_->room_version();
    buffer = store_->Create(spec);
    return buffer.ok() || !absl::IsUnavailable(buffer.status());
  };
  const absl::Status waited = DriveUntil(lock, deadline, created, WaitsFor::kRoom);
  if (!waited.ok()) {
    store_->CancelCreate(spec.id);
    if (absl::IsDeadlineExceeded(waited)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no room for ", spec.size_bytes, " bytes in the object store came free in time"));
    }
    return waited;
  }
  return buffer;
}

absl::StatusOr<MutableBuffer> RuntimeImpl::Create(size_t size, Nanos deadline,
                                                  std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  const std::vector<ObjectId> ids = IdsOf(nested);
  Lock lock(*this);
  // Readers find the references in the object, so each must be found by its owner from now on.
  for (const ObjectHandle& inner : nested) owner_->references.Outgoing(*inner.entry());
  ObjectSpec spec;
  spec.id = ObjectId::Make(self_, owner_->references.NextSequence(), 1);
  spec.size_bytes = size;
  spec.nested = ids;
  return CreateNamed(lock, spec, deadline);
}

absl::StatusOr<ObjectHandle> RuntimeImpl::Seal(MutableBuffer buffer,
                                               std::span<const ObjectHandle> nested) {
  Lock lock(*this);
  const ObjectId id = store_->IdOf(buffer);
  const uint64_t size = buffer.size();
  ObjectEntry* entry = owner_->references.NewOwned(id);
  ObjectHandle handle(entry);
  const ObjectLocation location = SealCounted(std::move(buffer));
  owner_->references.SetStored(*entry, location, size, UsesOf(owner_->references, nested));
  return handle;
}

ObjectLocation RuntimeImpl::SealValue(MutableBuffer buffer) {
  Lock lock(*this);
  return SealCounted(std::move(buffer));
}

void RuntimeImpl::CountPut(uint64_t* puts, uint64_t bytes) {
  ++*puts;
  object_counts_.put_bytes += bytes;
  metrics::Histogram(metrics::PageOf(segment_->data()), metrics::HistogramId::kObjectBytes)
      .ObserveUnderLock(static_cast<int64_t>(bytes));
}

ObjectLocation RuntimeImpl::SealCounted(MutableBuffer buffer) {
  CountPut(&object_counts_.puts_store, buffer.size());
  return store_->Seal(std::move(buffer));
}

absl::StatusOr<MutableBuffer> RuntimeImpl::CreateValue(ObjectId id, uint32_t attempt, size_t size,
                                                       std::span<const ObjectHandle> nested) {
  const std::vector<ObjectId> ids = IdsOf(nested);
  ObjectSpec spec;
  spec.id = id;
  spec.attempt = attempt;
  spec.size_bytes = size;
  spec.nested = ids;
  Lock lock(*this);
  for (const ObjectHandle& inner : nested) owner_->references.Outgoing(*inner.entry());
  return CreateNamed(lock, spec, kForever);
}

absl::StatusOr<ObjectLocation> RuntimeImpl::StoreValue(ObjectId id, uint32_t attempt,
                                                       std::string_view bytes,
                                                       std::span<const ObjectHandle> nested) {
  absl::StatusOr<MutableBuffer> buffer = CreateValue(id, attempt, bytes.size(), nested);
  if (!buffer.ok()) return buffer.status();
  ParallelCopy(buffer->data(), bytes.data(), bytes.size());
  return SealValue(*std::move(buffer));
}

ObjectId RuntimeImpl::NextStoredName() {
  Lock lock(*this);
  return ObjectId::Make(self_, owner_->references.NextSequence(), 1);
}

// False: not ready, or not in this process's reach yet; what brings it is under way.
bool RuntimeImpl::TryView(const ObjectHandle& object, ObjectView* view) {
  ObjectEntry& entry = *object.entry();
  switch (entry.state) {
    case ObjectState::kPending:
      owner_->resolver.Want(entry);
      return entry.ready() && TryView(object, view);
    case ObjectState::kValue:
      entry.viewed = true;
      view->bytes = entry.value;
      view->handle = object;
      ++object_counts_.gets_private;
      break;
    case ObjectState::kError:
      view->error = &entry.extra->error;
      view->handle = object;
      return true;
    case ObjectState::kStore: {
      if (entry.extra && std::exchange(entry.extra->unreachable, false)) {
        view->error = &entry.extra->error;
        view->handle = object;
        return true;
      }
      const ObjectId stored =
          entry.extra && !entry.extra->stored_as.is_nil() ? entry.extra->stored_as : entry.id;
      absl::StatusOr<StoredObject> found = store_->Get(stored, entry.location);
      if (!found.ok()) {
        owner_->resolver.Missing(entry);
        return false;
      }
      if (!found->nested.empty() && (!entry.extra || entry.extra->nested.empty())) {
        std::vector<NestedReference> references;
        for (ObjectId id : found->nested) references.push_back({id, {}});
        entry.more().nested = owner_->references.IncomingAll(references);
      }
      view->bytes = found->bytes.view();
      view->keep = std::move(found->bytes);
      view->handle = object;
      ++object_counts_.gets_store;
      break;
    }
  }
  if (entry.extra) {
    view->nested.clear();
    for (ObjectEntry* inner : entry.extra->nested) view->nested.emplace_back(inner);
  }
  return true;
}

std::string RuntimeImpl::WhatItWaitsFor(ObjectEntry& object) {
  const std::string name = absl::StrCat("the object ", object.id.ToHex());
  if (!object.owned)
    return absl::StrCat(name, " of process ", object.id.maker().ToString(), " is not there yet");
  if (object.task == nullptr) return absl::StrCat(name, " is being restored");
  return absl::StrCat(owner_->tasks.Describe(*object.task), " ", owner_->WordsOf(*object.task));
}

absl::Status RuntimeImpl::Get(std::span<const ObjectHandle> objects, Nanos deadline,
                              std::vector<ObjectView>* views) {
  Lock lock(*this);
  views->clear();
  views->resize(objects.size());
  for (const ObjectHandle& object : objects) {
    if (!object) return absl::InvalidArgumentError("an empty reference has no value");
    if (!object.entry()->owned) owner_->resolver.Want(*object.entry());
  }
  if (objects.size() == 1 && TryView(objects[0], &views->front())) [[likely]]
    return absl::OkStatus();
  Gathering gathering(*this, objects, views);
  std::string silence;
  absl::Status status = DriveUntil(lock, deadline, [&] {
    if (gathering.Look()) return true;
    silence = owner_->WordsOfSilence(*objects[gathering.next()].entry());
    return !silence.empty();
  });
  if (status.ok() && !silence.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(WhatItWaitsFor(*objects[gathering.next()].entry()), ": ", silence,
                     ". It stays pending: get it again to go on waiting"));
  }
  if (status.ok()) status = gathering.status();
  if (absl::IsDeadlineExceeded(status)) {
    const auto is_there = [](const ObjectView& view) { return static_cast<bool>(view.handle); };
    const auto there = std::count_if(views->begin(), views->end(), is_there);
    status = absl::DeadlineExceededError(
        absl::StrCat(there, " of ", objects.size(), " were ready in time; ",
                     WhatItWaitsFor(*objects[gathering.next()].entry())));
  }
  return status;
}

RuntimeImpl::Gathering::Gathering(RuntimeImpl& runtime, std::span<const ObjectHandle> objects,
                                  std::vector<ObjectView>* views)
    : runtime_(runtime), objects_(objects), views_(*views) {}

bool RuntimeImpl::Gathering::Take(size_t i) {
  ObjectView& view = views_[i];
  if (view.handle) return true;
  if (!runtime_.TryView(objects_[i], &view)) return false;
  // What is asked for alone says so by itself; among others it is their bytes that are in its way.
  if (view.error != nullptr && view.error->kind == ErrorKind::kObjectStoreFull &&
      view.handle.entry()->state == ObjectState::kStore && objects_.size() > 1 && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(view.error->message, " (this get holds all of its ", objects_.size(),
                     " objects at once: get fewer at a time)"));
  }
  return true;
}

void RuntimeImpl::Gathering::Count(size_t i) {
  const ObjectEntry* const entry = objects_[i].entry();
  if (entry->state == ObjectState::kStore && counted_.insert(entry).second)
    counted_bytes_ += entry->size;
}

void RuntimeImpl::Gathering::CheckTotal() {
  const uint64_t capacity = runtime_.store_->capacity_bytes();
  if (counted_bytes_ <= capacity || !status_.ok()) return;
  status_ = absl::ResourceExhaustedError(absl::StrCat(
      "the values of this get have ", counted_bytes_, " bytes together, in ", counted_.size(),
      " objects, and the object store of this node holds ", capacity,
      " bytes: get fewer at a time, or give the node a larger store (--object-store-memory)"));
}

bool RuntimeImpl::Gathering::Look() {
  const size_t size = objects_.size();
  for (; next_ < size; ++next_) {
    if (counting_) Count(next_);
    if (!Take(next_)) break;
  }
  if (next_ == size || !status_.ok()) return true;
  if (size == 1) return false;
  if (!std::exchange(counting_, true)) {
    for (size_t i = 0; i < size; ++i) Count(i);
  }
  CheckTotal();
  const uint64_t arrivals = runtime_.owner_->resolver.arrivals();
  if (arrivals != arrivals_ && next_ + 1 < size && status_.ok()) {
    arrivals_ = arrivals;
    LookAhead();
    CheckTotal();
  }
  return !status_.ok();
}

void RuntimeImpl::Gathering::LookAhead() {
  size_t coming = 0;
  uint64_t bytes = 0;
  const size_t end = std::min(objects_.size(), next_ + kAhead);
  for (size_t i = next_; i < end && coming < kObjects; ++i) {
    const ObjectEntry& entry = *objects_[i].entry();
    if (views_[i].handle || !entry.ready()) continue;
    Count(i);
    const bool fits = coming == 0 || bytes + entry.size <= kBytes;
    if (!fits && !runtime_.owner_->resolver.IsHere(entry)) return;
    if (Take(i)) continue;
    ++coming;
    bytes += entry.size;
  }
}

absl::StatusOr<std::vector<size_t>> RuntimeImpl::Wait(std::span<const ObjectHandle> objects,
                                                      size_t num_returns, Nanos deadline,
                                                      bool bring) {
  if (num_returns == 0 || num_returns > objects.size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_returns is ", num_returns, "; want 1 to ",
                                                   objects.size(), ", the number of references"));
  }
  for (const ObjectHandle& object : objects) {
    if (!object) return absl::InvalidArgumentError("an empty reference is never ready");
  }
  std::vector<size_t> ready;
  ready.reserve(num_returns);
  // Of those in a store. What was here once need not be here at the end: there may be no room. (A
  // value that goes to the store meanwhile, and from there to disk, is brought back.)
  std::vector<bool> came;
  const auto has_reached = [&](size_t i) {
    if (came.empty()) came.resize(objects.size());
    if (!came[i]) came[i] = owner_->resolver.IsHere(*objects[i].entry());
    return static_cast<bool>(came[i]);
  };
  const auto has_come = [&](size_t i) {
    const ObjectState state = objects[i].entry()->state;
    return bring && state == ObjectState::kStore ? has_reached(i) : state != ObjectState::kPending;
  };
  const auto look = [&] {
    ready.clear();
    size_t coming = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < objects.size(); ++i) {
      if (has_come(i)) {
        ready.push_back(i);
      } else if (ObjectEntry& entry = *objects[i].entry();
                 entry.ready() && coming < Gathering::kObjects &&
                 (coming == 0 || bytes + entry.size <= Gathering::kBytes)) {
        owner_->resolver.Missing(entry);
        ++coming;
        bytes += entry.size;
      }
      if (ready.size() == num_returns) return true;
    }
    return false;
  };
  Lock lock(*this);
  if (look()) return ready;
  for (const ObjectHandle& object : objects) owner_->resolver.Want(*object.entry());
  // All that may still come is with silent nodes.
  std::string silence;
  const auto is_silent = [&](const ObjectHandle& object) {
    if (has_come(static_cast<size_t>(&object - objects.data()))) return true;
    silence = owner_->WordsOfSilence(*object.entry());
    return !silence.empty();
  };
  const absl::Status status = DriveUntil(lock, deadline, [&] {
    return look() || (deadline == kForever && owner_->knows_silence() &&
                      std::ranges::all_of(objects, is_silent));
  });
  if (status.ok() && ready.size() < num_returns) {
    return absl::DeadlineExceededError(absl::StrCat(ready.size(), " of ", num_returns,
                                                    " are ready: ", silence,
                                                    ". The others stay pending: wait again"));
  }
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  return ready;
}

bool RuntimeImpl::IsReady(const ObjectHandle& object) {
  Lock lock(*this);
  ObjectEntry& entry = *object.entry();
  owner_->resolver.Want(entry);
  if (owner_->resolver.IsHere(entry)) return true;
  if (entry.ready()) owner_->resolver.Missing(entry);
  return false;
}

void RuntimeImpl::OnReady(const ObjectHandle& object, std::function<void()> callback) {
  {
    Lock lock(*this);
    if (!owner_->resolver.IsHere(*object.entry())) {
      owner_->resolver.WhenHere(*object.entry(),
                                [this, callback = std::move(callback)](ObjectEntry&) mutable {
                                  callbacks_.Post(std::move(callback));
                                });
      return;
    }
  }
  callback();
}

void RuntimeImpl::SignalReady(const ObjectHandle& object, std::function<void()> signal) {
  Lock lock(*this);
  owner_->resolver.WhenHere(*object.entry(),
                            [signal = std::move(signal)](ObjectEntry&) { signal(); });
}

absl::StatusOr<ObjectHandle> RuntimeImpl::HandleFor(ObjectId id) {
  Lock lock(*this);
  ObjectEntry* entry = owner_->references.Find(id);
  if (entry == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no reference to ", id.ToHex(), " came to this process"));
  }
  return ObjectHandle(entry);
}

}  // namespace sheaf
