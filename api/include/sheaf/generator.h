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
  using value_type = T;  // What it yields.
  // For the compiler.
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
    // co_await is for coroutines that return sheaf::Async<T>.
    template <class Awaited>
    void await_transform(Awaited&&) = delete;
  };

  // For the compiler, which makes one when the coroutine is called.
  explicit Generator(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  // Moves the coroutine; the other is empty then.
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
  // What was yielded last; valid until Next.
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
  ObjectStream() = default;  // Empty: no stream.
  // For Sheaf's own use.
  static ObjectStream FromHandle(internal::Handle handle) {
    ObjectStream stream;
    stream.handle_ = std::move(handle);
    return stream;
  }

  // Waits for the next value, and returns a reference to it; nullopt: the generator ended. What it
  // threw is what Get of the last reference throws. Throws TimeoutError.
  std::optional<ObjectRef<T>> Next(std::chrono::nanoseconds timeout = kForever) {
    internal::Handle item = internal::NextItem(handle_, timeout);
    if (!item) return std::nullopt;
    return ObjectRef<T>::FromHandle(std::move(item));
  }

  // For range-based loops: a reference to each value, in order. It waits in ++.
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
  // A loop over what is left.
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

  // For Sheaf's own use.
  const internal::Handle& handle() const noexcept { return handle_; }

 private:
  internal::Handle handle_;
};

}  // namespace sheaf::inline v1
