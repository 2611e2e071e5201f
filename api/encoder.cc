// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "sheaf/internal/encoder.h"

#include <algorithm>

#include "object_store/parallel_copy.h"

namespace sheaf::inline v1::internal {
namespace {

constexpr size_t Aligned64(size_t bytes) { return (bytes + 63) & ~size_t{63}; }

}  // namespace

void Encoder::Grow(size_t size) {
  const size_t used = body_bytes();
  const size_t capacity = std::max(2 * static_cast<size_t>(end_ - begin_), used + size);
  std::unique_ptr<char[]> larger(new char[capacity]);
  std::memcpy(larger.get(), begin_, used);
  heap_ = std::move(larger);
  begin_ = heap_.get();
  position_ = begin_ + used;
  end_ = begin_ + capacity;
}

void Encoder::ThrowTooDeep() {
  throw SerializationError("values inside values, more than 200 deep");
}

void Encoder::WriteNumbers(NumberKind kind, const void* data, size_t bytes) {
  const char kind_byte = static_cast<char>(kind);
  if (bytes <= kInlineArrayBytes || (buffers_.size() == kMaxBuffers && bytes < UINT32_MAX)) {
    packer().pack_ext(1 + bytes, kExtArray);
    write(&kind_byte, 1);
    if (bytes > 0) write(static_cast<const char*>(data), bytes);
    return;
  }
  if (buffers_.size() == kMaxBuffers)
    throw SerializationError("a value with more than 65,535 large arrays");
  const uint32_t index = static_cast<uint32_t>(buffers_.size());
  buffers_.push_back({data, bytes});
  packer().pack_ext(5, kExtBuffer);
  write(&kind_byte, 1);
  write(reinterpret_cast<const char*>(&index), sizeof(index));
}

void Encoder::WriteReference(ExtType type, const Handle& handle) {
  if (!handle) throw SerializationError("an empty ObjectRef or ActorHandle cannot be sent");
  NestedForm form;
  form.index = static_cast<uint32_t>(nested_.size());
  const RawId id = handle.id();
  static_assert(sizeof(id) == sizeof(form.id));
  std::memcpy(form.id, &id, sizeof(id));
  nested_.push_back(handle.entry());
  packer().pack_ext(sizeof(form), type);
  write(reinterpret_cast<const char*>(&form), sizeof(form));
}

size_t Encoder::SizeWithBuffers() const {
  size_t size = sizeof(OutOfBandHead) + buffers_.size() * sizeof(BufferEntry) + body_bytes();
  for (const Segment& buffer : buffers_) size = Aligned64(size) + buffer.bytes;
  return size;
}

void WriteArrayHead(char* out, NumberKind kind, uint64_t bytes) {
  const char body[] = {static_cast<char>(0xc7), 5, kExtBuffer, static_cast<char>(kind), 0, 0, 0, 0};
  const OutOfBandHead head{.buffer_count = 1, .body_bytes = sizeof(body)};
  const BufferEntry entry{kArrayHeadBytes, bytes};
  static_assert(sizeof(head) + sizeof(entry) + sizeof(body) <= kArrayHeadBytes);
  std::memset(out, 0, kArrayHeadBytes);
  std::memcpy(out, &head, sizeof(head));
  std::memcpy(out + sizeof(head), &entry, sizeof(entry));
  std::memcpy(out + sizeof(head) + sizeof(entry), body, sizeof(body));
}

void Encoder::CopyTo(char* out, bool cold) const {
  if (buffers_.empty()) {
    std::memcpy(out, begin_, body_bytes());
    return;
  }
  if (body_bytes() > UINT32_MAX)
    throw SerializationError("more than 4 GiB beside the arrays of numbers");
  OutOfBandHead head;
  head.buffer_count = static_cast<uint16_t>(buffers_.size());
  head.body_bytes = static_cast<uint32_t>(body_bytes());
  std::memcpy(out, &head, sizeof(head));
  char* entries = out + sizeof(head);
  char* body = entries + buffers_.size() * sizeof(BufferEntry);
  std::memcpy(body, begin_, body_bytes());
  size_t end = static_cast<size_t>(body - out) + body_bytes();
  const Pages pages = cold ? Pages::kCold : Pages::kEntered;
  for (const Segment& buffer : buffers_) {
    const BufferEntry entry{Aligned64(end), buffer.bytes};
    std::memset(out + end, 0, entry.offset - end);
    ParallelCopy(out + entry.offset, buffer.data, buffer.bytes, pages);
    std::memcpy(entries, &entry, sizeof(entry));
    entries += sizeof(entry);
    end = entry.offset + entry.bytes;
  }
}

}  // namespace sheaf::inline v1::internal
