// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Remote functions.
//
//   int Square(int x) { return x * x; }
//   SHEAF_REMOTE(Square);
//   sheaf::ObjectRef<int> nine = sheaf::Task(Square).Remote(3);
// Arguments are values, or references to values: ObjectRef<int> goes where an int is wanted, and
// the task starts when the value is there. References inside values (a vector of them, a field)
// arrive as references. Parameters may be taken by value or const reference; std::span<const T> and
// sheaf::Array<T> read a std::vector<T> of numbers where it lies.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "sheaf/generator.h"
#include "sheaf/internal/arguments.h"
#include "sheaf/internal/invoke.h"
#include "sheaf/internal/names.h"
#include "sheaf/internal/registry.h"
#include "sheaf/object_ref.h"
#include "sheaf/options.h"

namespace sheaf::inline v1 {
namespace internal {

SHEAF_API Handle SubmitTask(const FunctionRecord& function, OptionHolder& options,
                            Arguments& arguments);
// One handle for each result.
SHEAF_API void SubmitTask(const FunctionRecord& function, OptionHolder& options,
                          Arguments& arguments, std::span<Handle> results);
[[noreturn]] SHEAF_API void ThrowNotRegistered(const std::string& signature);
SHEAF_API void Cancel(const Handle& object, bool force, bool recursive);

template <auto kFunction>
struct FunctionRegistration {
  using Pointer = typename SignatureOf<decltype(kFunction)>::Pointer;

  static bool Register() {
    static FunctionRecord record;
    static PointerNode<Pointer> node{kFunction, &record};
    static const bool once = [] {
      using Signature = SignatureOf<decltype(kFunction)>;
      record.name = NameOf<kFunction>();
      record.key = KeyOf<typename Signature::Plain>(record.name);
      record.parameters = std::tuple_size_v<typename Signature::Parameters>;
      record.streaming = RemoteOf<typename Signature::Return>::kStreaming;
      if constexpr (CheckFunction<decltype(kFunction)>())
        record.invoke = &InvokeFunction<kFunction>;
      internal::Register(&record);
      PointerList<Pointer>::Add(&node);
      return true;
    }();
    return once;
  }
};
template <auto... kFunctions>
bool RegisterFunctions() {
  return (FunctionRegistration<kFunctions>::Register() && ...);
}

template <class Tuple>
struct RefTuple;
template <class... Ts>
struct RefTuple<std::tuple<Ts...>> {
  using Type = std::tuple<ObjectRef<Ts>...>;
  static Type From(std::span<Handle> handles) {
    return From(handles, std::index_sequence_for<Ts...>());
  }
  template <size_t... kIndices>
  static Type From(std::span<Handle> handles, std::index_sequence<kIndices...>) {
    return Type{ObjectRef<Ts>::FromHandle(std::move(handles[kIndices]))...};
  }
};

}  // namespace internal

// A remote function with its options. Copyable; use one object for many calls.
template <class R, class... Parameters>
class TaskCaller : public internal::OptionHolder,
                   public PlacedOptions<TaskCaller<R, Parameters...>>,
                   public RetryOptions<TaskCaller<R, Parameters...>> {
  using Remoted = internal::RemoteOf<R>;
  template <class... Given>
  using Fit = internal::ArgumentsFit<std::tuple<Parameters...>, Given...>;

 public:
  // Made by Task().
  explicit TaskCaller(const internal::FunctionRecord* function) : function_(function) {}

  // The worker ends after so many calls of the function: for functions that leak.
  TaskCaller& MaxCalls(uint32_t calls) {
    this->Change().max_calls = calls;
    return *this;
  }

  // Submits a call and returns at once: an ObjectRef to its result, or an ObjectStream of the
  // values of a generator. It waits when too much is queued. Throws PendingCallsLimitError when
  // that stays so, ObjectStoreFullError when large arguments find no room.
  template <class... Given>
  typename Remoted::Handle Remote(const Given&... arguments) {
    if constexpr (Fit<Given...>::Check()) {
      internal::Arguments encoded;
      internal::AddArguments(std::type_identity<std::tuple<Parameters...>>(), encoded,
                             arguments...);
      return Remoted::Handle::FromHandle(internal::SubmitTask(*function_, *this, encoded));
    }
  }

  // For functions that return a std::tuple: a reference to each element by itself.
  template <class... Given>
  auto RemoteTuple(const Given&... arguments) {
    using Value = typename Remoted::Value;
    constexpr bool kIsTuple = internal::kIs<Value, std::tuple> && !Remoted::kStreaming;
    static_assert(kIsTuple, "sheaf: RemoteTuple() is for functions that return a std::tuple");
    if constexpr (kIsTuple && Fit<Given...>::Check()) {
      internal::Arguments encoded;
      internal::AddArguments(std::type_identity<std::tuple<Parameters...>>(), encoded,
                             arguments...);
      internal::Handle results[std::tuple_size_v<Value>];
      internal::SubmitTask(*function_, *this, encoded, results);
      return internal::RefTuple<Value>::From(results);
    }
  }

 private:
  const internal::FunctionRecord* function_;
};

// A call of a function to be made: Task(Square).Remote(3). Throws InvalidArgumentError when
// `function` was not registered by SHEAF_REMOTE.
template <class R, class... Parameters>
TaskCaller<R, Parameters...> Task(R (*function)(Parameters...)) {
  const internal::FunctionRecord* record =
      internal::PointerList<R (*)(Parameters...)>::Find(function);
  if (record == nullptr) [[unlikely]]
    internal::ThrowNotRegistered(internal::TypeName<R(Parameters...)>());
  return TaskCaller<R, Parameters...>(record);
}

// Asks the task that makes `ref` to end; Get then throws TaskCancelledError. A task that has not
// started does not start. A running one sees IsCancelled() and its waits end; `force` ends its
// process. `recursive`: tasks that it submitted, too. Nothing happens when it has ended.
template <class T>
void Cancel(const ObjectRef<T>& ref, bool force = false, bool recursive = true) {
  internal::Cancel(ref.handle(), force, recursive);
}
template <class T>
void Cancel(const ObjectStream<T>& stream, bool force = false, bool recursive = true) {
  internal::Cancel(stream.handle(), force, recursive);
}
// In a task: whether somebody asked it to end. Cheap enough for inner loops.
SHEAF_API bool IsCancelled();

}  // namespace sheaf::inline v1

// For SHEAF_REMOTE and SHEAF_ACTOR.
#define SHEAF_CONCATENATE_INNER(a, b) a##b
// For SHEAF_REMOTE and SHEAF_ACTOR.
#define SHEAF_CONCATENATE(a, b) SHEAF_CONCATENATE_INNER(a, b)

// Makes functions callable in other processes: SHEAF_REMOTE(Square); or several:
// SHEAF_REMOTE(Square, app::Cube, Max<int>). At namespace scope, in a source file or a header.
// Every process of a job is the same program, so it registers the same.
#define SHEAF_REMOTE(...)                                                            \
  [[maybe_unused]] static const bool SHEAF_CONCATENATE(sheaf_remote_, __COUNTER__) = \
      ::sheaf::internal::RegisterFunctions<__VA_ARGS__>()
