// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From a registered function to the code that decodes its arguments, runs it and encodes its
// result.
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sheaf/coroutine.h"
#include "sheaf/generator.h"
#include "sheaf/internal/arguments.h"
#include "sheaf/internal/call.h"
#include "sheaf/internal/names.h"

namespace sheaf::inline v1::internal {

// R(P...) of anything that can be called.
template <class F>
struct SignatureOf;
template <class R, class... P>
struct SignatureOf<R (*)(P...)> {
  using Return = R;
  using Parameters = std::tuple<P...>;
  using Plain = R(P...);
  using Pointer = R (*)(P...);
};
template <class R, class... P>
struct SignatureOf<R (*)(P...) noexcept> : SignatureOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...)> : SignatureOf<R (*)(P...)> {
  using Class = C;
  using Pointer = R (C::*)(P...);
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> : SignatureOf<R (*)(P...)> {
  using Class = C;
  using Pointer = R (C::*)(P...) const;
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) noexcept> : SignatureOf<R (C::*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const noexcept> : SignatureOf<R (C::*)(P...) const> {};

// What a caller gets for a function that returns R.
template <class R>
struct RemoteOf {
  using Value = std::remove_cvref_t<R>;
  using Handle = ObjectRef<Value>;
  static constexpr bool kStreaming = false;
  static constexpr bool kAsync = false;
};
template <class T>
struct RemoteOf<Async<T>> : RemoteOf<T> {
  static constexpr bool kAsync = true;
};
template <class T>
struct RemoteOf<Generator<T>> {
  using Value = T;
  using Handle = ObjectStream<T>;
  static constexpr bool kStreaming = true;
  static constexpr bool kAsync = false;
};
template <class R>
concept ReturnType =
    std::is_void_v<typename RemoteOf<R>::Value> || Serializable<typename RemoteOf<R>::Value>;

template <class Parameters>
inline constexpr bool kParametersTravel = false;
template <class... P>
inline constexpr bool kParametersTravel<std::tuple<P...>> = (ParameterType<P> && ...);

// Says what keeps a function from being called remotely.
template <class Function>
constexpr bool CheckFunction() {
  using Signature = SignatureOf<Function>;
  static_assert(kParametersTravel<typename Signature::Parameters>,
                "sheaf: a parameter of this function cannot travel between processes: it is a "
                "pointer, a non-const reference, or "
                "a type that sheaf/serialize.h does not list");
  static_assert(ReturnType<typename Signature::Return>,
                "sheaf: the result of this function cannot travel between processes (see "
                "sheaf/serialize.h for what can)");
  return kParametersTravel<typename Signature::Parameters> &&
         ReturnType<typename Signature::Return>;
}

// What holds the argument of a parameter.
template <class Parameter>
struct SlotFor {
  using Type = ValueOf<Parameter>;
};
template <class Parameter>
  requires NumberSpan<ValueOf<Parameter>>
struct SlotFor<Parameter> {
  using Type = BorrowedSpan<std::remove_const_t<typename ValueOf<Parameter>::element_type>>;
};

// `type`: what was wanted of the argument whose bytes are none.
[[noreturn]] SHEAF_API void ThrowWrongArgument(size_t index, const std::string& type,
                                               const SerializationError& error);

template <class Parameter>
typename SlotFor<Parameter>::Type ReadSlot(const Call& call, size_t index) try {
  using Value = ValueOf<Parameter>;
  Decoder in(call.bytes(index), call.source(index));
  if constexpr (std::same_as<Value, std::string_view>) {
    const std::string_view text = in.ReadText();
    in.Finish();
    return text;
  } else if constexpr (NumberSpan<Value>) {
    auto span = ReadSpan<std::remove_const_t<typename Value::element_type>>(in);
    in.Finish();
    return span;
  } else {
    Value value = Read<Value>(in);
    in.Finish();
    return value;
  }
} catch (const SerializationError& error) {
  ThrowWrongArgument(index, TypeName<ValueOf<Parameter>>(), error);
}
template <class Parameter, class Slot>
decltype(auto) Pass(Slot& slot) {
  if constexpr (NumberSpan<ValueOf<Parameter>>) {
    return static_cast<const ValueOf<Parameter>&>(slot.span);
  } else if constexpr (std::is_lvalue_reference_v<Parameter>) {
    return static_cast<const Slot&>(slot);
  } else {
    return std::move(slot);
  }
}

template <class Parameters>
struct Slots;
template <class... P>
struct Slots<std::tuple<P...>> {
  using Type = std::tuple<typename SlotFor<P>::Type...>;
  template <size_t... kIndices>
  static Type Read(const Call& call, std::index_sequence<kIndices...>) {
    return Type{ReadSlot<P>(call, kIndices)...};
  }
  static Type Read(const Call& call) {
    call.ExpectArguments(sizeof...(P));
    return Read(call, std::index_sequence_for<P...>());
  }
  // `function` with the arguments; slots of parameters taken by value are moved from.
  template <class Function>
  static decltype(auto) Apply(Function& function, Type& slots) {
    return std::apply(
        [&function](auto&... slot) -> decltype(auto) { return function(Pass<P>(slot)...); }, slots);
  }
};

template <class T>
void ReturnResult(Call& call, const T& value) {
  if constexpr (kIs<T, std::tuple>) {
    if (call.returns() > 1) {
      size_t index = 0;
      std::apply([&](const auto&... element) { (ReturnValue(call, index++, element), ...); },
                 value);
      return;
    }
  }
  ReturnValue(call, 0, value);
}

// Starts `body` on the thread of coroutines, as `call`.
SHEAF_API void StartCoroutine(const Call& call, std::coroutine_handle<> body);

// Keeps arguments and call until the coroutine ends. `function` is a pointer, or object and
// pointer: copied.
template <class Signature, class Function>
Detached RunAsync(Call call, Function function,
                  typename Slots<typename Signature::Parameters>::Type slots) {
  try {
    if constexpr (std::is_void_v<typename RemoteOf<typename Signature::Return>::Value>) {
      co_await Slots<typename Signature::Parameters>::Apply(function, slots);
      ReturnNothing(call);
    } else {
      ReturnResult(call, co_await Slots<typename Signature::Parameters>::Apply(function, slots));
    }
  } catch (...) {
    call.FailWithCurrentException();
  }
}

// Runs `function` as `call`. May throw.
template <class Signature, class Function>
void Invoke(Call& call, Function function) {
  using Arguments = Slots<typename Signature::Parameters>;
  using Return = typename Signature::Return;
  typename Arguments::Type slots = Arguments::Read(call);
  if constexpr (RemoteOf<Return>::kAsync) {
    StartCoroutine(call, RunAsync<Signature>(call, function, std::move(slots)).coroutine);
  } else if constexpr (RemoteOf<Return>::kStreaming) {
    Return generator = Arguments::Apply(function, slots);
    while (generator.Next()) {
      Encoder encoder;
      Write(encoder, generator.value());
      if (!call.Yield(encoder)) break;
    }
  } else if constexpr (std::is_void_v<Return>) {
    Arguments::Apply(function, slots);
    ReturnNothing(call);
  } else {
    ReturnResult(call, Arguments::Apply(function, slots));
  }
}

template <auto kFunction>
void InvokeFunction(Call& call) {
  Invoke<SignatureOf<decltype(kFunction)>>(call, kFunction);
}
template <class Class, auto kMethod>
void InvokeMethod(Call& call) {
  Class* object = static_cast<Class*>(call.instance());
  Invoke<SignatureOf<decltype(kMethod)>>(call, [object](auto&&... arguments) -> decltype(auto) {
    return (object->*kMethod)(std::forward<decltype(arguments)>(arguments)...);
  });
}

}  // namespace sheaf::inline v1::internal
