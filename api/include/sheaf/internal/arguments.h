// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which arguments fit which parameters, and how they enter a call.
#pragma once

#include <concepts>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sheaf/internal/encoder.h"
#include "sheaf/object_ref.h"

namespace sheaf::inline v1::internal {

// The arguments of one call, encoded in place for the runtime.
class SHEAF_API Arguments {
 public:
  Arguments();
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  char* AddInPlace(size_t bytes);  // To be filled before the next Add.
  void Add(const Encoder& value);  // Large values become objects of the store.
  void AddReference(const Handle& object);

  static constexpr size_t kStorageBytes = 128;
  void* storage() { return storage_; }

 private:
  alignas(16) unsigned char storage_[kStorageBytes];  // The runtime's ArgumentList.
};

// What a function parameter holds while the function runs: the type without const and reference.
template <class Parameter>
using ValueOf = std::remove_cvref_t<Parameter>;

// Parameters that a remote function may have.
template <class Parameter>
concept ParameterType = (!std::is_lvalue_reference_v<Parameter> ||
                         std::is_const_v<std::remove_reference_t<Parameter>>) &&
                        (Serializable<ValueOf<Parameter>> || NumberSpan<ValueOf<Parameter>> ||
                         std::same_as<ValueOf<Parameter>, std::string_view>);

// An object holding a Value can be read as the parameter's type.
template <class Value, class Wanted>
inline constexpr bool kObjectFits =
    kReadsAs<Value, Wanted> ||
    (std::same_as<Value, std::string> && std::same_as<Wanted, std::string_view>) ||
    (std::is_integral_v<Value> && std::is_integral_v<Wanted> && !std::same_as<Value, bool> &&
     !std::same_as<Wanted, bool>) ||
    (Number<Value> && std::is_arithmetic_v<Value> && std::is_floating_point_v<Wanted>);
template <class T, class Wanted>
inline constexpr bool kArrayFits = NumberSpan<Wanted> && std::same_as<Wanted, std::span<const T>>;
template <class T, class Wanted>
  requires kArrayFits<T, Wanted>
inline constexpr bool kObjectFits<std::vector<T>, Wanted> = true;
template <class T, class Wanted>
  requires kArrayFits<T, Wanted>
inline constexpr bool kObjectFits<Array<T>, Wanted> = true;

template <class Given, class Wanted>
inline constexpr bool kFits = std::convertible_to<const Given&, Wanted> || kReadsAs<Given, Wanted>;
template <class Value, class Wanted>
inline constexpr bool kFits<ObjectRef<Value>, Wanted> =
    kObjectFits<Value, Wanted> || std::convertible_to<const ObjectRef<Value>&, Wanted>;

template <size_t kIndex, class Given, class Wanted>
struct ArgumentFits {
  static constexpr bool value = kFits<std::remove_cvref_t<Given>, ValueOf<Wanted>>;
  static_assert(value,
                "sheaf: an argument does not fit its parameter: give a value that converts to the "
                "parameter's type, or an "
                "ObjectRef of exactly that type (position and types stand in the line below: "
                "ArgumentFits<position, given, wanted>)");
};
template <size_t kGiven, size_t kWanted>
struct ArgumentCountFits {
  static constexpr bool value = kGiven == kWanted;
  static_assert(
      value,
      "sheaf: Remote() is called with another number of arguments than the function has parameters "
      "(the line below says ArgumentCountFits<given, wanted>)");
};
template <class Parameters, class... Given>
struct ArgumentsFit;
template <class... Wanted, class... Given>
struct ArgumentsFit<std::tuple<Wanted...>, Given...> {
  template <size_t... kIndices>
  static constexpr bool Each(std::index_sequence<kIndices...>) {
    return (ArgumentFits<kIndices, Given, Wanted>::value && ...);
  }
  static constexpr bool Check() {  // Says what is wrong.
    if constexpr (!ArgumentCountFits<sizeof...(Given), sizeof...(Wanted)>::value) {
      return false;
    } else {
      return Each(std::index_sequence_for<Given...>());
    }
  }
  static constexpr bool Quietly() {
    if constexpr (sizeof...(Given) != sizeof...(Wanted)) {
      return false;
    } else {
      return (kFits<std::remove_cvref_t<Given>, ValueOf<Wanted>> && ...);
    }
  }
};

// Adds `given` as the argument for a parameter of type Wanted (without const and reference).
template <class Wanted, class Given>
inline void AddArgument(Arguments& out, const Given& given) {
  if constexpr (kIs<Given, ObjectRef> && !kIs<Wanted, ObjectRef>) {
    out.AddReference(given.handle());
  } else if constexpr (Scalar<Wanted>) {
    SmallStream stream;
    WriteScalar(stream, static_cast<Wanted>(given));
    std::memcpy(out.AddInPlace(stream.size), stream.bytes, stream.size);
  } else if constexpr (std::same_as<Given, Wanted> || kReadsAs<Given, Wanted>) {
    Encoder encoder;
    Write(encoder, given);
    out.Add(encoder);
  } else {
    const Wanted converted = static_cast<Wanted>(given);
    Encoder encoder;
    Write(encoder, converted);
    out.Add(encoder);
  }
}

template <class... Wanted, class... Given>
inline void AddArguments(std::type_identity<std::tuple<Wanted...>>, Arguments& out,
                         const Given&... given) {
  (AddArgument<ValueOf<Wanted>>(out, given), ...);
}

}  // namespace sheaf::inline v1::internal
