// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/buffer.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "object_store/layout.h"
#include "object_store/parallel_copy.h"
#include "object_store/unsealed_slot.h"

namespace sheaf {
namespace {

class StringOwner final : public BufferOwner {
 public:
  explicit StringOwner(std::string bytes) : bytes_(std::move(bytes)) {}
  const std::string& bytes() const { return bytes_; }

 private:
  void LastReferenceGone() override { delete this; }
  const std::string bytes_;
};

// The payload follows the owner in one allocation, on the next cache line.
class alignas(kPayloadAlignment) HeapOwner final : public BufferOwner {
 public:
  static HeapOwner* Make(size_t size) {
    void* memory = ::operator new(sizeof(HeapOwner) + size, std::align_val_t{kPayloadAlignment});
    return new (memory) HeapOwner;
  }
  std::byte* payload() { return reinterpret_cast<std::byte*>(this) + sizeof(HeapOwner); }

 private:
  void LastReferenceGone() override {
    this->~HeapOwner();
    ::operator delete(static_cast<void*>(this), std::align_val_t{kPayloadAlignment});
  }
};
static_assert(sizeof(HeapOwner) == kPayloadAlignment);

}  // namespace

Buffer Buffer::FromString(std::string bytes) {
  auto* owner = new StringOwner(std::move(bytes));
  return Buffer(owner, reinterpret_cast<const std::byte*>(owner->bytes().data()),
                owner->bytes().size());
}

Buffer Buffer::CopyOf(std::string_view bytes) {
  HeapOwner* owner = HeapOwner::Make(bytes.size());
  if (!bytes.empty()) std::memcpy(owner->payload(), bytes.data(), bytes.size());
  return Buffer(owner, owner->payload(), bytes.size());
}

Buffer Buffer::Slice(size_t offset, size_t size) const {
  Buffer part = *this;
  offset = std::min(offset, size_);
  part.data_ += offset;
  part.size_ = std::min(size, size_ - offset);
  return part;
}

MutableBuffer::MutableBuffer() = default;
MutableBuffer::MutableBuffer(std::unique_ptr<UnsealedSlot> slot, std::byte* data, size_t size)
    : slot_(std::move(slot)), data_(data), size_(size) {}
MutableBuffer::MutableBuffer(MutableBuffer&& other) noexcept
    : slot_(std::move(other.slot_)),
      owner_(std::exchange(other.owner_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      cold_(std::exchange(other.cold_, false)) {}
MutableBuffer& MutableBuffer::operator=(MutableBuffer&& other) noexcept {
  std::swap(slot_, other.slot_);
  std::swap(owner_, other.owner_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(cold_, other.cold_);
  return *this;
}
MutableBuffer::~MutableBuffer() {
  if (owner_ != nullptr) owner_->Unref();
}

MutableBuffer MutableBuffer::OnHeap(size_t size) {
  HeapOwner* owner = HeapOwner::Make(size);
  MutableBuffer buffer;
  buffer.owner_ = owner;
  buffer.data_ = owner->payload();
  buffer.size_ = size;
  return buffer;
}

void MutableBuffer::Warm() {
  if (std::exchange(cold_, false)) ParallelEnterPages(data_, size_);
}

Buffer MutableBuffer::Freeze() && {
  if (owner_ == nullptr) return {};
  return Buffer(std::exchange(owner_, nullptr), std::exchange(data_, nullptr),
                std::exchange(size_, 0));
}

}  // namespace sheaf
