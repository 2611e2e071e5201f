// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A growing array of bytes, 8-byte aligned, that needs no allocation while it is short: the
// arguments of most calls.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace sheaf {

class InlineBytes {
 public:
  static constexpr uint32_t kInline = 40;

  InlineBytes() = default;
  InlineBytes(std::string_view bytes) { append(bytes); }
  InlineBytes(const std::string& bytes) : InlineBytes(std::string_view(bytes)) {}
  InlineBytes(const InlineBytes&) = delete;
  InlineBytes(InlineBytes&& other) noexcept { Take(other); }
  InlineBytes& operator=(InlineBytes&& other) noexcept {
    if (this != &other) {
      Release();
      Take(other);
    }
    return *this;
  }
  ~InlineBytes() { Release(); }

  const char* data() const { return capacity_ == kInline ? inline_ : heap_; }
  char* data() { return capacity_ == kInline ? inline_ : heap_; }
  size_t size() const { return size_; }
  operator std::string_view() const { return {data(), size_}; }

  // `bytes` more at the end, not initialised; returns where. At most 4 GiB in all.
  char* Extend(size_t bytes) {
    const size_t size = size_ + bytes;
    if (size > capacity_) [[unlikely]]
      Grow(size);
    char* at = data() + size_;
    size_ = static_cast<uint32_t>(size);
    return at;
  }
  void append(std::string_view bytes) {
    if (!bytes.empty()) std::memcpy(Extend(bytes.size()), bytes.data(), bytes.size());
  }

 private:
  void Grow(size_t wanted) {
    const size_t capacity = wanted < 2 * size_t{capacity_} ? 2 * size_t{capacity_} : wanted;
    if (capacity > UINT32_MAX) throw std::bad_alloc();
    char* moved = static_cast<char*>(::operator new(capacity));
    std::memcpy(moved, data(), size_);
    Release();
    heap_ = moved;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void Release() {
    if (capacity_ != kInline) ::operator delete(heap_);
  }
  void Take(InlineBytes& other) {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInline);
    if (capacity_ == kInline) {
      std::memcpy(inline_, other.inline_, (size_ + 7) & ~7u);
    } else {
      heap_ = other.heap_;
    }
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;  // kInline: the bytes are in inline_.
  union {
    alignas(8) char inline_[kInline];
    char* heap_;
  };
};

}  // namespace sheaf
