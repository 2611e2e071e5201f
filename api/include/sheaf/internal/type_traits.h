// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How each C++ type travels.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace sheaf::inline v1 {

template <class T>
class ObjectRef;
template <class Class>
class ActorHandle;
template <class T>
class Array;
template <class T>
class Generator;
template <class T>
class Async;

}  // namespace sheaf::inline v1

namespace sheaf::inline v1::internal {

template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <template <class...> class Template, class... Args>
inline constexpr bool kIs<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool kIsStdArray = false;
template <class T, size_t kSize>
inline constexpr bool kIsStdArray<std::array<T, kSize>> = true;
template <class T>
inline constexpr bool kIsSpan = false;
template <class T>
inline constexpr bool kIsSpan<std::span<T>> = true;
template <class T>
inline constexpr bool kIsDuration = false;
template <class Rep, class Period>
inline constexpr bool kIsDuration<std::chrono::duration<Rep, Period>> = true;
template <class T>
inline constexpr bool kIsSystemTime = false;
template <class D>
inline constexpr bool kIsSystemTime<std::chrono::time_point<std::chrono::system_clock, D>> = true;

// Numbers whose arrays travel as raw memory. long double differs between machines.
template <class T>
concept Number = (std::is_arithmetic_v<T> && !std::same_as<T, bool> &&
                  !std::same_as<T, long double> && !std::is_const_v<T> && !std::is_volatile_v<T>) ||
                 std::same_as<T, std::byte>;

// What kind of number an array holds, whatever its C++ name: byte size and 'i', 'u' or 'f'. Part of
// the format.
enum class NumberKind : uint8_t {
  kInt8 = 0x11,
  kInt16 = 0x12,
  kInt32 = 0x14,
  kInt64 = 0x18,
  kUint8 = 0x21,
  kUint16 = 0x22,
  kUint32 = 0x24,
  kUint64 = 0x28,
  kFloat32 = 0x34,
  kFloat64 = 0x38,
};
template <Number T>
constexpr NumberKind KindOf() {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<NumberKind>(0x30 + sizeof(T));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<NumberKind>(0x10 + sizeof(T));
  } else {
    return static_cast<NumberKind>(0x20 + sizeof(T));
  }
}

template <class T>
concept NumberVector = kIs<T, std::vector> && Number<typename T::value_type>;
template <class T>
concept NumberSpan = kIsSpan<T> && Number<std::remove_const_t<typename T::element_type>> &&
                     std::is_const_v<typename T::element_type> && T::extent == std::dynamic_extent;
template <class T>
concept NumberArray = kIs<T, Array>;

template <class T>
concept Pointer = kIs<T, std::unique_ptr> || kIs<T, std::shared_ptr>;
// An optional-like type's value: T* of unique_ptr<T>, shared_ptr<T>.
template <Pointer T>
using Pointee = typename T::element_type;

template <class T>
concept Map = std::ranges::input_range<T> && requires(T& map, typename T::key_type key) {
  typename T::mapped_type;
  map.try_emplace(std::move(key));
};
template <class T>
concept Set = std::ranges::input_range<T> && !Map<T> &&
              requires(T& set, typename T::key_type key) { set.insert(std::move(key)); };
template <class T>
concept Sequence =
    std::ranges::input_range<T> && !Map<T> && !Set<T> && !std::same_as<T, std::string> &&
    !kIs<T, Array> && std::ranges::sized_range<T> &&
    requires(T& list, typename T::value_type item) { list.push_back(std::move(item)); };

// A class that says itself how it travels: as the value that ToSheaf returns, from which FromSheaf
// makes it again.
template <class T>
concept Custom = requires(const T& value) { T::FromSheaf(value.ToSheaf()); };
template <Custom T>
using CustomForm = std::remove_cvref_t<decltype(std::declval<const T&>().ToSheaf())>;

// A plain struct. Its fields are looked at where it is written or read, so that a struct may
// contain itself in a vector.
template <class T>
concept Plain = std::is_aggregate_v<T> && std::is_class_v<T> && !std::is_polymorphic_v<T> &&
                !kIsStdArray<T> && !Custom<T> && !std::is_empty_v<T>;
template <class T>
concept EmptyStruct =
    std::is_empty_v<T> && std::is_aggregate_v<T> && std::is_class_v<T> && !Custom<T>;

template <class T>
constexpr bool CanTravel();

template <class Tuple, size_t... kIndices>
constexpr bool AllCanTravel(std::index_sequence<kIndices...>) {
  return (CanTravel<std::tuple_element_t<kIndices, Tuple>>() && ...);
}
template <class T>
struct VariantTravels : std::false_type {};
template <class... Ts>
struct VariantTravels<std::variant<Ts...>> : std::bool_constant<(CanTravel<Ts>() && ...)> {};

template <class T>
constexpr bool CanTravel() {
  if constexpr (!std::same_as<T, std::remove_cvref_t<T>>) {
    return false;
  } else if constexpr (Number<T> || std::same_as<T, bool> || std::is_enum_v<T> ||
                       std::same_as<T, std::string> || std::same_as<T, std::monostate> ||
                       kIsDuration<T> || kIsSystemTime<T> || NumberArray<T> || kIs<T, ObjectRef> ||
                       kIs<T, ActorHandle> || Custom<T> || EmptyStruct<T> || Plain<T>) {
    return true;
  } else if constexpr (kIs<T, std::optional>) {
    return CanTravel<typename T::value_type>();
  } else if constexpr (Pointer<T>) {
    return !std::is_array_v<typename T::element_type> &&
           CanTravel<std::remove_const_t<Pointee<T>>>();
  } else if constexpr (kIs<T, std::pair> || kIs<T, std::tuple>) {
    return AllCanTravel<T>(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (kIs<T, std::variant>) {
    return VariantTravels<T>::value;
  } else if constexpr (kIsStdArray<T>) {
    return CanTravel<typename T::value_type>();
  } else if constexpr (Map<T>) {
    return CanTravel<typename T::key_type>() && CanTravel<typename T::mapped_type>();
  } else if constexpr (Set<T> || Sequence<T>) {
    return CanTravel<typename T::value_type>();
  } else {
    return false;
  }
}

}  // namespace sheaf::inline v1::internal

namespace sheaf::inline v1 {

// Types that can be arguments, results and Put: numbers, bool, enums, strings, standard containers,
// optional, variant, tuple, chrono, plain structs of these (without a macro), classes with ToSheaf
// and FromSheaf, Array, ObjectRef, ActorHandle.
template <class T>
concept Serializable = internal::CanTravel<T>();

}  // namespace sheaf::inline v1
