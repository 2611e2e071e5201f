// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Immutable bytes, wherever they lie: in the node's arena (pinned while a Buffer views them) or on
// the heap. A Buffer is a pointer, a length and a counted reference; copying and slicing copy no
// bytes. Buffers may be copied, read and dropped on any thread, also after the StoreClient they
// came from is gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "object_store/parallel_copy.h"

namespace sheaf {

// What keeps the bytes of some Buffers. Starts with one reference, held by its maker.
class BufferOwner {
 public:
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  // False when the last reference is gone already: then the bytes may be, too.
  bool TryRef() {
    uint32_t seen = references_.load(std::memory_order_relaxed);
    while (seen != 0) {
      if (references_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) LastReferenceGone();
  }

 protected:
  BufferOwner() = default;
  virtual ~BufferOwner() = default;
  // On the thread that dropped the last Buffer. Must not take locks of its user. Ends `this`, now
  // or later.
  virtual void LastReferenceGone() = 0;

 private:
  std::atomic<uint32_t> references_{1};
};

class Buffer {
 public:
  Buffer() = default;
  // Takes over one reference of `owner`, which keeps [data, data + size).
  Buffer(BufferOwner* owner, const std::byte* data, size_t size)
      : owner_(owner), data_(data), size_(size) {}
  Buffer(const Buffer& other) : owner_(other.owner_), data_(other.data_), size_(other.size_) {
    if (owner_ != nullptr) owner_->Ref();
  }
  Buffer(Buffer&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (owner_ != nullptr) owner_->Unref();
  }

  // Heap bytes, without a copy; aligned as std::string aligns.
  static Buffer FromString(std::string bytes);
  // Heap bytes, copied, aligned to 64 bytes like those in the arena.
  static Buffer CopyOf(std::string_view bytes);

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // A part that keeps the whole alive. Clamped to the end.
  Buffer Slice(size_t offset, size_t size = SIZE_MAX) const;

 private:
  BufferOwner* owner_ = nullptr;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// What an unsealed buffer in the arena gives back when it is dropped (unsealed_slot.h).
class UnsealedSlot;

// Memory to build a value in, before anybody else sees it: in the arena (StoreClient::Create, then
// Seal) or on the heap (OnHeap, then Freeze). Aligned to 64 bytes, contents undefined. Dropped
// unsealed, it is given back; on any thread.
class MutableBuffer {
 public:
  MutableBuffer();
  MutableBuffer(MutableBuffer&&) noexcept;
  MutableBuffer& operator=(MutableBuffer&&) noexcept;
  ~MutableBuffer();

  static MutableBuffer OnHeap(size_t size);
  // Ends writing to a heap buffer. Empty for one in the arena, which StoreClient::Seal takes.
  Buffer Freeze() &&;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  bool in_arena() const { return slot_ != nullptr; }
  // Cold where nobody has written to the memory through this mapping: for ParallelCopy.
  Pages pages() const { return cold_ ? Pages::kCold : Pages::kEntered; }
  // Readies the memory for being written in place: pages of the arena that this process has not written to
  // before are entered into its page table, by several threads if cores are idle, in a third of the
  // time that faults take. Takes a millisecond for 4 MiB then, so not to be called under a lock;
  // else nothing.
  void Warm();

 private:
  friend class StoreClient;
  MutableBuffer(std::unique_ptr<UnsealedSlot> slot, std::byte* data, size_t size);

  std::unique_ptr<UnsealedSlot> slot_;  // Of an arena buffer.
  BufferOwner* owner_ = nullptr;        // Of a heap buffer.
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool cold_ = false;  // Nobody has written to the memory through this mapping.
};

}  // namespace sheaf
