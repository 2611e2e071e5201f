// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// References to immutable objects of the cluster: results of calls, and values that were Put.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sheaf/array.h"
#include "sheaf/errors.h"
#include "sheaf/internal/handle.h"
#include "sheaf/internal/values.h"
#include "sheaf/serialize.h"

namespace sheaf::inline v1 {

// A wait without a limit.
inline constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

namespace internal {
// A value of type From can be read as a To: the same bytes.
template <class From, class To>
inline constexpr bool kReadsAs = std::is_same_v<From, To>;
template <class T>
inline constexpr bool kReadsAs<std::vector<T>, Array<T>> = Number<T>;
template <class T>
inline constexpr bool kReadsAs<Array<T>, std::vector<T>> = Number<T>;
}  // namespace internal

// The name of an object that is there, or will be. Copyable, one pointer in size; the object lives
// while somebody in the cluster holds a reference. Thread-safe as an int is: different copies from
// any thread, one copy from one at a time.
template <class T>
class ObjectRef {
 public:
  using value_type = T;  // What Get gives.

  ObjectRef() = default;  // Empty: names nothing.
  // A std::vector<T> and an Array<T> are the same bytes, and read as each other.
  template <class Other>
    requires(!std::is_same_v<Other, T> && internal::kReadsAs<Other, T>)
  ObjectRef(const ObjectRef<Other>& other) : handle_(other.handle()) {}

  // Whether it names an object.
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  // 32 hexadecimal digits, as the command line takes them.
  std::string id() const { return internal::ToHex(handle_.id()); }
  // Whether both name the same object.
  friend bool operator==(const ObjectRef& a, const ObjectRef& b) {
    return a.handle_.id() == b.handle_.id();
  }

  // For Sheaf's own use.
  const internal::Handle& handle() const noexcept { return handle_; }
  static ObjectRef FromHandle(internal::Handle handle) {
    ObjectRef ref;
    ref.handle_ = std::move(handle);
    return ref;
  }

 private:
  internal::Handle handle_;
};

namespace internal {
template <class T>
std::span<const Handle> Handles(const std::vector<ObjectRef<T>>& refs) {
  static_assert(sizeof(ObjectRef<T>) == sizeof(Handle) && std::is_standard_layout_v<ObjectRef<T>>);
  return {reinterpret_cast<const Handle*>(refs.data()), refs.size()};
}
template <class... Ts, size_t... kIndices>
std::tuple<Ts...> DecodeTuple(const Views& views, std::index_sequence<kIndices...>) {
  return std::tuple<Ts...>{Decode<Ts>(views, kIndices)...};
}
}  // namespace internal

// Waits for the value and returns it. Throws what the call ended with (errors.h), or TimeoutError
// when it is not there within `timeout`. A task lends its CPUs to others while it waits. Any thread
// may call.
template <class T>
T Get(const ObjectRef<T>& ref, std::chrono::nanoseconds timeout = kForever) {
  const internal::Views views(ref.handle(), timeout);
  if (views.failure()) [[unlikely]]
    Raise(*views.failure());
  return internal::Decode<T>(views, 0);
}
// Waits once for all values and returns them in order. Throws the first that is an error.
template <class T>
auto Get(const std::vector<ObjectRef<T>>& refs, std::chrono::nanoseconds timeout = kForever) {
  const internal::Views views(internal::Handles(refs), timeout);
  if (views.failure()) Raise(*views.failure());
  if constexpr (std::is_void_v<T>) {
    for (size_t i = 0; i < refs.size(); ++i) internal::Decode<void>(views, i);
  } else {
    std::vector<T> values;
    values.reserve(refs.size());
    for (size_t i = 0; i < refs.size(); ++i) values.push_back(internal::Decode<T>(views, i));
    return values;
  }
}
// The same for values of several types.
template <class... Ts>
std::tuple<Ts...> Get(const std::tuple<ObjectRef<Ts>...>& refs,
                      std::chrono::nanoseconds timeout = kForever) {
  static_assert(!(std::is_void_v<Ts> || ...),
                "sheaf::Get: a tuple cannot hold the value of an ObjectRef<void>");
  return std::apply(
      [timeout](const ObjectRef<Ts>&... ref) {
        const internal::Handle handles[] = {ref.handle()...};
        const internal::Views views(handles, timeout);
        if (views.failure()) Raise(*views.failure());
        return internal::DecodeTuple<Ts...>(views, std::index_sequence_for<Ts...>());
      },
      refs);
}

// As Get, but an error comes back as a value instead of being thrown.
template <class T>
Result<T> TryGet(const ObjectRef<T>& ref, std::chrono::nanoseconds timeout = kForever) {
  const internal::Views views(ref.handle(), timeout);
  if (views.failure()) return *views.failure();
  return internal::TryDecode<T>(views, 0);
}
// All results are kTimeout when one value is not there in time.
template <class T>
std::vector<Result<T>> TryGet(const std::vector<ObjectRef<T>>& refs,
                              std::chrono::nanoseconds timeout = kForever) {
  const internal::Views views(internal::Handles(refs), timeout);
  std::vector<Result<T>> results;
  results.reserve(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) {
    results.push_back(views.failure() ? Result<T>(*views.failure())
                                      : internal::TryDecode<T>(views, i));
  }
  return results;
}

// What Wait found.
template <class T>
struct WaitResult {
  std::vector<ObjectRef<T>> ready;      // At most num_returns, in the order given.
  std::vector<ObjectRef<T>> not_ready;  // The others, in the order given.
};
// Waits until `num_returns` of `refs` are ready (as a value or an error), or until `timeout`. With
// `fetch_local` values that lie elsewhere are fetched, and ready when they are on this node;
// without it they stay where they are. Move `refs` in where they are many.
template <class T>
WaitResult<T> Wait(std::vector<ObjectRef<T>> refs, size_t num_returns = 1,
                   std::chrono::nanoseconds timeout = kForever, bool fetch_local = true) {
  const std::vector<size_t> ready =
      internal::WaitReady(internal::Handles(refs), num_returns, timeout, fetch_local);
  WaitResult<T> result;
  result.ready.reserve(ready.size());
  for (const size_t index : ready) result.ready.push_back(std::move(refs[index]));
  // What is left moves together in place.
  size_t kept = 0;
  size_t next_ready = 0;
  for (size_t i = 0; i < refs.size(); ++i) {
    if (next_ready < ready.size() && ready[next_ready] == i) {
      ++next_ready;
    } else if (const size_t to = kept++; to != i) {
      refs[to] = std::move(refs[i]);
    }
  }
  refs.resize(kept);
  result.not_ready = std::move(refs);
  return result;
}
// Whether Get would return at once.
template <class T>
bool IsReady(const ObjectRef<T>& ref) {
  return internal::IsReady(ref.handle());
}

// Makes `value` an object, which the reference names. Throws ObjectStoreFullError when there is no
// room within a minute, OutOfDiskError when the disk is full as well.
template <class T>
ObjectRef<T> Put(const T& value) {
  static_assert(
      Serializable<T>,
      "sheaf::Put: this type cannot travel between processes (see sheaf/serialize.h for what can)");
  if constexpr (!Serializable<T>) {
    return {};
  } else if constexpr (internal::Scalar<T>) {
    internal::SmallStream stream;
    internal::WriteScalar(stream, value);
    return ObjectRef<T>::FromHandle(internal::PutBytes({stream.bytes, stream.size}));
  } else {
    internal::Encoder encoder;
    internal::Write(encoder, value);
    return ObjectRef<T>::FromHandle(internal::PutValue(encoder));
  }
}
inline ObjectRef<std::string> Put(const char* text) { return Put(std::string(text)); }

// An array of numbers that is built where it will be read, without any copy. Dropped unsealed, it
// was never there.
template <class T>
class ArrayBuilder {
 public:
  // Made by CreateArray().
  explicit ArrayBuilder(size_t count)
      : building_(internal::kArrayHeadBytes + count * sizeof(T)), count_(count) {
    internal::WriteArrayHead(building_.data(), internal::KindOf<T>(), count * sizeof(T));
  }
  // As of a std::span; until Seal.
  T* data() const { return reinterpret_cast<T*>(building_.data() + internal::kArrayHeadBytes); }
  size_t size() const { return count_; }
  std::span<T> span() const { return {data(), count_}; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](size_t index) const { return data()[index]; }
  // Publishes it. Once; the memory must not be written any more.
  ObjectRef<Array<T>> Seal() { return ObjectRef<Array<T>>::FromHandle(building_.Seal()); }

 private:
  internal::Building building_;
  size_t count_;
};
// Memory for `count` numbers, contents undefined, aligned to 64 bytes. Throws ObjectStoreFullError
// when there is no room within a minute, InvalidArgumentError for more than any memory has.
template <class T>
ArrayBuilder<T> CreateArray(size_t count) {
  static_assert(internal::Number<T>, "sheaf::CreateArray makes arrays of numbers");
  if (count > SIZE_MAX / 2 / sizeof(T))
    throw InvalidArgumentError("sheaf::CreateArray: too many numbers");
  return ArrayBuilder<T>(count);
}

}  // namespace sheaf::inline v1

// References as keys of unordered containers.
template <class T>
struct std::hash<sheaf::ObjectRef<T>> {
  size_t operator()(const sheaf::ObjectRef<T>& ref) const noexcept {
    const sheaf::internal::RawId id = ref.handle().id();
    return static_cast<size_t>((id.maker * 0x9e3779b97f4a7c15u) ^ id.sequence);
  }
};
