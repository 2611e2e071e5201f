// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A thread of a simulated process, as a coroutine: Async<T> is a function that can wait. Destroying
// an unfinished one destroys all that it called, as the death of a process does.
#pragma once

#include <coroutine>
#include <cstdlib>
#include <optional>
#include <utility>

namespace sheaf::sim {

template <class T>
class Async;

namespace internal {

struct PromiseBase {
  std::coroutine_handle<> caller;  // Resumed at the end.
  std::suspend_always initial_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::abort(); }
  struct Final {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      return ended.promise().caller ? ended.promise().caller : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  Final final_suspend() noexcept { return {}; }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Async<T> get_return_object();
  void return_value(T result) { value.emplace(std::move(result)); }
  T Take() { return std::move(*value); }
};
template <>
struct Promise<void> : PromiseBase {
  Async<void> get_return_object();
  void return_void() {}
  void Take() {}
};

}  // namespace internal

template <class T = void>
class [[nodiscard]] Async {
 public:
  using promise_type = internal::Promise<T>;
  explicit Async(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Async(Async&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Async& operator=(Async&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Async() {
    if (handle_) handle_.destroy();
  }

  // As a root: runs until it waits for the first time.
  void Start() { handle_.resume(); }
  bool done() const { return handle_.done(); }

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    return handle_;
  }
  T await_resume() { return handle_.promise().Take(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <class T>
Async<T> internal::Promise<T>::get_return_object() {
  return Async<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Async<void> internal::Promise<void>::get_return_object() {
  return Async<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

}  // namespace sheaf::sim
