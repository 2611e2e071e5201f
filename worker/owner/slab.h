// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Records of one type with a small number as their name, reused hottest first. Addresses are
// stable. Not thread-safe.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/mutex.h"

namespace sheaf {

template <class T>
class Slab {
 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    ForEach([](T& record) { record.~T(); });
  }

  // T must have a field `uint32_t cookie`, which becomes the record's name.
  template <class... Args>
  T* New(Args&&... args) {
    if (free_.empty()) Grow();
    const uint32_t cookie = free_.back();
    free_.pop_back();
    Chunk& chunk = *chunks_[cookie / kChunk];
    T* made = new (chunk.cells[cookie % kChunk].bytes) T(std::forward<Args>(args)...);
    made->cookie = cookie;
    chunk.used.set(cookie % kChunk);
    ++size_;
    return made;
  }
  void Delete(T* record) {
    const uint32_t cookie = record->cookie;
    record->~T();
    chunks_[cookie / kChunk]->used.reset(cookie % kChunk);
    free_.push_back(cookie);
    --size_;
  }
  // nullptr: there is none of that name.
  T* Find(uint32_t cookie) {
    if (cookie >= chunks_.size() * kChunk) return nullptr;
    Chunk& chunk = *chunks_[cookie / kChunk];
    const uint32_t index = cookie % kChunk;
    return chunk.used[index] ? std::launder(reinterpret_cast<T*>(chunk.cells[index].bytes))
                             : nullptr;
  }
  size_t size() const { return size_; }
  template <class Visit>
  void ForEach(Visit visit) {
    for (uint32_t cookie = 0; cookie < chunks_.size() * kChunk; ++cookie) {
      if (T* record = Find(cookie)) visit(*record);
    }
  }
  // Handles to records live on: their memory stays until the process ends.
  void Leak() {
    static Mutex mutex;
    static auto* const kept ABSL_PT_GUARDED_BY(mutex) = new std::vector<std::unique_ptr<Chunk>>;
    const MutexLock lock(mutex);
    for (auto& chunk : chunks_) kept->push_back(std::move(chunk));
    chunks_.clear();
  }

 private:
  static constexpr uint32_t kChunk = 256;
  struct Cell {
    alignas(T) unsigned char bytes[sizeof(T)];
  };
  struct Chunk {
    std::bitset<kChunk> used;
    Cell cells[kChunk];
  };
  void Grow() {
    const auto first = static_cast<uint32_t>(chunks_.size() * kChunk);
    chunks_.push_back(std::make_unique_for_overwrite<Chunk>());
    for (uint32_t i = kChunk; i-- > 0;) free_.push_back(first + i);
  }
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<uint32_t> free_;
  size_t size_ = 0;
};

}  // namespace sheaf
