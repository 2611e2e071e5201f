// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Functions that give many values, one by one. The caller gets each as soon as it is there. When
// its process dies, or values are lost with a node, a task's function runs again (max_retries) for
// what is missing: it has to yield the same values. StreamReplayError: it yielded fewer.
//
//   sheaf::Generator<int> Squares(int n) { for (int i = 0; i < n; ++i) co_yield i * i; }
//   SHEAF_REMOTE(Squares);
//   for (sheaf::ObjectRef<int> square : sheaf::Task(Squares).Remote(10)) sheaf::Get(square);
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "sheaf/object_ref.h"

namespace sheaf::inline v1 {

// A coroutine with co_yield. Runs on the thread that asks for the next value; co_await is for
// Async<T>.
template <class T>
class [[nodiscard]] Generator {
 public:
  using value_type = T;
  struct promise_type {
    const T* current = nullptr;
    std::exception_ptr error;

    Generator get_return_object() {
      return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(const T& value) noexcept {
      current = std::addressof(value);
      return {};
    }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
    template <class Awaited>
    // co_await is for coroutines that return sheaf::Async<T>.
    void await_transform(Awaited&&) = delete;
  };

  explicit Generator(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  Generator(Generator&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Generator& operator=(Generator other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Generator() {
    if (coroutine_) coroutine_.destroy();
  }

  // Runs to the next co_yield; false: it ended. Throws what the function throws.
  bool Next() {
    coroutine_.resume();
    if (coroutine_.promise().error)
      std::rethrow_exception(std::exchange(coroutine_.promise().error, nullptr));
    return !coroutine_.done();
  }
  const T& value() const { return *coroutine_.promise().current; }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

namespace internal {
// Empty: the end. Throws TimeoutError.
SHEAF_API Handle NextItem(const Handle& stream, Timeout timeout);
}  // namespace internal

// The values of a generator that runs somewhere, in order. One consumer: copies share the position.
// When the last copy is gone the generator is stopped.
template <class T>
class ObjectStream {
 public:
  ObjectStream() = default;
  static ObjectStream FromHandle(internal::Handle handle) {
    ObjectStream stream;
    stream.handle_ = std::move(handle);
    return stream;
  }

  // The next value, ready or about to be; nullopt: the generator ended. What it threw is what the
  // last reference throws.
  std::optional<ObjectRef<T>> Next(std::chrono::nanoseconds timeout = kForever) {
    internal::Handle item = internal::NextItem(handle_, timeout);
    if (!item) return std::nullopt;
    return ObjectRef<T>::FromHandle(std::move(item));
  }

  class Iterator {
   public:
    using value_type = ObjectRef<T>;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    explicit Iterator(ObjectStream* stream) : stream_(stream) { ++*this; }
    const ObjectRef<T>& operator*() const { return *item_; }
    Iterator& operator++() {
      item_ = stream_->Next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return !it.item_.has_value();
    }

   private:
    ObjectStream* stream_;
    std::optional<ObjectRef<T>> item_;
  };
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

  const internal::Handle& handle() const noexcept { return handle_; }

 private:
  internal::Handle handle_;
};

}  // namespace sheaf::inline v1
