// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Functions that wait without holding a thread: C++20 coroutines that return Async<T> and co_await
// references.
//
//   sheaf::Async<double> Mean(sheaf::ObjectRef<double> a, sheaf::ObjectRef<double> b) {
//     co_return (co_await a + co_await b) / 2;
//   }
// As a remote function or a method of an actor it is called like any other: Task(Mean).Remote(a,
// b). All coroutines of one process run on one thread, so they share data without locks; between
// two co_awaits nothing else runs. Elsewhere BlockOn(Mean(a, b)) runs one to its end.
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sheaf/errors.h"
#include "sheaf/object_ref.h"

namespace sheaf::inline v1 {
namespace internal {

// Of the coroutine that runs on this thread. Throw SystemError where none does.
SHEAF_API void ResumeWhenReady(const Handle& object, std::coroutine_handle<> waiting);
SHEAF_API void ResumeAfter(std::chrono::nanoseconds duration, std::coroutine_handle<> waiting);
// Throws TaskCancelledError when the coroutine's call was cancelled while it waited.
SHEAF_API void ThrowIfCancelled();
// Runs `start`, and what follows from it, on this thread, until *done.
SHEAF_API void RunUntil(std::coroutine_handle<> start, const bool* done);

// A coroutine that ends while the one that awaits it is still in await_suspend does not resume it:
// that just goes on. So a loop of awaits needs no stack, also where the compiler does not turn
// transfers between coroutines into jumps (-O0).
struct ResumeContinuation {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> finished) const noexcept {
    return finished.promise().starting ? std::noop_coroutine() : finished.promise().continuation;
  }
  void await_resume() const noexcept {}
};

struct AsyncPromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  bool starting = false;
  std::exception_ptr error;

  std::suspend_always initial_suspend() noexcept { return {}; }
  ResumeContinuation final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};
template <class T>
struct AsyncPromise : AsyncPromiseBase {
  std::optional<T> value;

  Async<T> get_return_object();
  template <class Value>
  void return_value(Value&& result) {
    value.emplace(std::forward<Value>(result));
  }
  T Take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};
template <>
struct AsyncPromise<void> : AsyncPromiseBase {
  Async<void> get_return_object();
  void return_void() noexcept {}
  void Take() {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace internal

// A coroutine that will give a T. It starts when it is awaited (or called as a task), once. Owns
// its frame.
template <class T>
class [[nodiscard]] Async {
 public:
  using promise_type = internal::AsyncPromise<T>;  // For the compiler.
  using value_type = T;                            // What it gives.

  // For the compiler, which makes one when the coroutine is called.
  explicit Async(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  // Moves the coroutine; the other is empty then.
  Async(Async&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Async& operator=(Async other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Async() {
    if (coroutine_) coroutine_.destroy();
  }

  // What co_await calls: runs the coroutine, and gives its value or throws its exception.
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiting) {
    coroutine_.promise().continuation = waiting;
    coroutine_.promise().starting = true;
    coroutine_.resume();
    coroutine_.promise().starting = false;
    return !coroutine_.done();
  }
  T await_resume() { return coroutine_.promise().Take(); }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

namespace internal {

template <class T>
Async<T> AsyncPromise<T>::get_return_object() {
  return Async<T>(std::coroutine_handle<AsyncPromise>::from_promise(*this));
}
inline Async<void> AsyncPromise<void>::get_return_object() {
  return Async<void>(std::coroutine_handle<AsyncPromise>::from_promise(*this));
}

template <class T>
struct ObjectAwaiter {
  ObjectRef<T> ref;
  bool await_ready() const { return sheaf::IsReady(ref); }
  void await_suspend(std::coroutine_handle<> waiting) const {
    ResumeWhenReady(ref.handle(), waiting);
  }
  T await_resume() const {
    ThrowIfCancelled();
    return sheaf::Get(ref);
  }
};
struct SleepAwaiter {
  std::chrono::nanoseconds duration;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { ResumeAfter(duration, waiting); }
  void await_resume() const { ThrowIfCancelled(); }
};

// Runs by itself and frees itself.
struct Detached {
  struct promise_type {
    Detached get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
  std::coroutine_handle<> coroutine;
};
template <class T>
Detached Finish(Async<T>& async, bool* done, std::exception_ptr* error, std::optional<T>* value) {
  try {
    value->emplace(co_await async);
  } catch (...) {
    *error = std::current_exception();
  }
  *done = true;
}
inline Detached Finish(Async<void>& async, bool* done, std::exception_ptr* error) {
  try {
    co_await async;
  } catch (...) {
    *error = std::current_exception();
  }
  *done = true;
}

}  // namespace internal

// In coroutines: co_await ref gives the value, or throws as Get does.
template <class T>
internal::ObjectAwaiter<T> operator co_await(ObjectRef<T> ref) {
  return {std::move(ref)};
}
// All values, in order. (g++ 12 cannot compile a braced list inside a co_await expression: name the
// vector first.)
template <class T>
Async<std::vector<T>> All(std::vector<ObjectRef<T>> refs) {
  std::vector<T> values;
  values.reserve(refs.size());
  for (const ObjectRef<T>& ref : refs) values.push_back(co_await ref);
  co_return values;
}
// In coroutines: co_await sheaf::Sleep(10ms).
inline internal::SleepAwaiter Sleep(std::chrono::nanoseconds duration) { return {duration}; }

// Runs a coroutine to its end on this thread. Not from within another coroutine: co_await it there.
template <class T>
T BlockOn(Async<T> async) {
  bool done = false;
  std::exception_ptr error;
  if constexpr (std::is_void_v<T>) {
    internal::RunUntil(internal::Finish(async, &done, &error).coroutine, &done);
    if (error) std::rethrow_exception(error);
  } else {
    std::optional<T> value;
    internal::RunUntil(internal::Finish(async, &done, &error, &value).coroutine, &done);
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
}

}  // namespace sheaf::inline v1
