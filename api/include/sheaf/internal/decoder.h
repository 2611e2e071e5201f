// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bytes to values; the format is in encoder.h. Bytes are untrusted: what does not fit the wanted
// type, is too short, too deep or too many is a SerializationError, before memory is spent on it.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/pfr/core.hpp>

#include "sheaf/array.h"
#include "sheaf/internal/encoder.h"

namespace sheaf::inline v1::internal {

// Where bytes came from: what pins them, and the references inside them. The runtime's.
struct Source;
// nullptr: the bytes do not stay (they must be copied).
SHEAF_API std::shared_ptr<const void> PinSource(const Source* source);
// The `index`-th reference inside the value, which should be `id`. Throws SerializationError when
// there is none of that id.
SHEAF_API Handle ReferenceIn(const Source* source, uint32_t index, RawId id);

// A position in the bytes of one value.
class SHEAF_API Decoder {
 public:
  // `source` may be null: then the value cannot contain references, and Arrays are copied.
  Decoder(std::string_view bytes, const Source* source)
      : position_(bytes.data()), end_(bytes.data() + bytes.size()), value_(bytes), source_(source) {
    if (!bytes.empty() && static_cast<uint8_t>(bytes[0]) == kOutOfBandMark) [[unlikely]]
      OpenOutOfBand();
  }

  bool ReadBool();
  int64_t ReadSigned(int64_t low, int64_t high) {
    if (position_ != end_ && static_cast<int8_t>(*position_) >= 0) [[likely]]
      return ReadSmall(high);
    return ReadSignedSlow(low, high);
  }
  uint64_t ReadUnsigned(uint64_t high) {
    if (position_ != end_ && static_cast<int8_t>(*position_) >= 0) [[likely]] {
      return static_cast<uint64_t>(
          ReadSmall(high > INT64_MAX ? INT64_MAX : static_cast<int64_t>(high)));
    }
    return ReadUnsignedSlow(high);
  }
  double ReadDouble() {
    if (end_ - position_ >= 9 && static_cast<uint8_t>(*position_) == 0xcb) [[likely]] {
      uint64_t bits;
      std::memcpy(&bits, position_ + 1, 8);
      position_ += 9;
      return std::bit_cast<double>(__builtin_bswap64(bits));
    }
    return ReadDoubleSlow();
  }
  void ReadNil();
  std::string_view ReadText();  // In place.
  size_t ReadArrayHead();       // At most as many as bytes remain.
  size_t ReadMapHead();
  void ReadArrayHead(size_t wanted);
  // True: `numbers` are in place (perhaps not aligned). False: an ordinary msgpack array comes
  // next.
  bool ReadNumbers(NumberKind kind, std::span<const char>* numbers);
  Handle ReadReference(ExtType type);

  std::shared_ptr<const void> Pin() const {
    return source_ == nullptr ? nullptr : PinSource(source_);
  }
  void Enter() {
    if (++depth_ > kMaxDepth) [[unlikely]]
      Fail("values inside values, too deep");
  }
  void Leave() { --depth_; }
  // All bytes are read.
  void Finish() const {
    if (position_ != end_) [[unlikely]]
      Fail("more bytes than the type has");
  }
  [[noreturn]] static void Fail(const char* what);

 private:
  int64_t ReadSmall(int64_t high) {
    const int64_t value = *position_++;
    if (value > high) [[unlikely]]
      Fail("a number out of range");
    return value;
  }
  void OpenOutOfBand();
  int64_t ReadSignedSlow(int64_t low, int64_t high);
  uint64_t ReadUnsignedSlow(uint64_t high);
  double ReadDoubleSlow();
  uint8_t Byte();
  uint64_t BigEndian(int bytes);
  std::string_view Take(uint64_t bytes);
  std::pair<int8_t, std::string_view> ReadExt();

  const char* position_;
  const char* end_;  // Of the msgpack part.
  std::string_view value_;
  const char* buffers_ = nullptr;  // BufferEntry[buffer_count_] inside value_, at any address.
  size_t buffer_count_ = 0;
  const Source* source_;
  int depth_ = 0;
};

// A std::span parameter's memory: the bytes themselves, or a copy where they are not aligned.
template <Number T>
struct BorrowedSpan {
  std::span<const T> span;
  std::vector<T> copy;
};

template <class T>
T Read(Decoder& in);

template <Number T>
inline T ReadNumber(Decoder& in) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(in.ReadDouble());
  } else if constexpr (std::same_as<T, std::byte>) {
    return static_cast<std::byte>(in.ReadUnsigned(0xff));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(
        in.ReadSigned(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    return static_cast<T>(in.ReadUnsigned(std::numeric_limits<T>::max()));
  }
}

template <Number T>
std::vector<T> ReadNumberVector(Decoder& in) {
  std::span<const char> raw;
  std::vector<T> out;
  if (in.ReadNumbers(KindOf<T>(), &raw)) {
    out.resize(raw.size() / sizeof(T));
    if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), raw.data(), raw.size());
    return out;
  }
  const size_t count = in.ReadArrayHead();
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(ReadNumber<T>(in));
  return out;
}

template <Number T>
BorrowedSpan<T> ReadSpan(Decoder& in) {
  Decoder ahead = in;
  std::span<const char> raw;
  if (ahead.ReadNumbers(KindOf<T>(), &raw) &&
      reinterpret_cast<uintptr_t>(raw.data()) % alignof(T) == 0) {
    in = ahead;
    return {{reinterpret_cast<const T*>(raw.data()), raw.size() / sizeof(T)}, {}};
  }
  BorrowedSpan<T> out{{}, ReadNumberVector<T>(in)};
  // Stays valid when `out` is moved: the elements of a vector do not move with it.
  out.span = out.copy;
  return out;
}

template <Number T>
Array<T> ReadArray(Decoder& in) {
  if (std::shared_ptr<const void> keep = in.Pin()) {
    BorrowedSpan<T> borrowed = ReadSpan<T>(in);
    if (borrowed.copy.empty()) return Array<T>(borrowed.span, std::move(keep));
    return Array<T>(std::move(borrowed.copy));
  }
  return Array<T>(ReadNumberVector<T>(in));
}

template <class T, size_t... kIndices>
T ReadFields(Decoder& in, std::index_sequence<kIndices...>) {
  return T{Read<boost::pfr::tuple_element_t<kIndices, T>>(in)...};  // Braces: from left to right.
}
template <class T, size_t... kIndices>
T ReadElements(Decoder& in, std::index_sequence<kIndices...>) {
  return T{Read<std::remove_const_t<std::tuple_element_t<kIndices, T>>>(in)...};
}
template <class T, size_t... kIndices>
T ReadSameElements(Decoder& in, std::index_sequence<kIndices...>) {
  return T{((void)kIndices, Read<typename T::value_type>(in))...};
}
template <class Variant, size_t kIndex = 0>
Variant ReadAlternative(Decoder& in, size_t index) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    Decoder::Fail("a variant with more alternatives");
  } else {
    if (index == kIndex) {
      return Variant(std::in_place_index<kIndex>,
                     Read<std::variant_alternative_t<kIndex, Variant>>(in));
    }
    return ReadAlternative<Variant, kIndex + 1>(in, index);
  }
}

// Elements: bytes of a peer do not make us allocate a thousand times as many.
inline constexpr size_t kReserveAtOnce = 1024;

template <class T>
T ReadCompound(Decoder& in) {
  if constexpr (Custom<T>) {
    return T::FromSheaf(Read<CustomForm<T>>(in));
  } else if constexpr (kIs<T, std::optional>) {
    const size_t count = in.ReadArrayHead();
    if (count > 1) Decoder::Fail("an optional with several values");
    if (count == 0) return std::nullopt;
    return T(Read<typename T::value_type>(in));
  } else if constexpr (Pointer<T>) {
    const size_t count = in.ReadArrayHead();
    if (count > 1) Decoder::Fail("a pointer to several values");
    if (count == 0) return nullptr;
    return T(new std::remove_const_t<Pointee<T>>(Read<std::remove_const_t<Pointee<T>>>(in)));
  } else if constexpr (kIs<T, std::variant>) {
    in.ReadArrayHead(2);
    return ReadAlternative<T>(in, in.ReadUnsigned(std::variant_size_v<T>));
  } else if constexpr (kIs<T, std::pair> || kIs<T, std::tuple>) {
    in.ReadArrayHead(std::tuple_size_v<T>);
    return ReadElements<T>(in, std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (kIsStdArray<T>) {
    in.ReadArrayHead(std::tuple_size_v<T>);
    return ReadSameElements<T>(in, std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (Map<T>) {
    T out;
    for (size_t count = in.ReadMapHead(); count > 0; --count) {
      auto key = Read<typename T::key_type>(in);
      out.try_emplace(std::move(key), Read<typename T::mapped_type>(in));
    }
    return out;
  } else if constexpr (Set<T>) {
    T out;
    for (size_t count = in.ReadArrayHead(); count > 0; --count)
      out.insert(Read<typename T::key_type>(in));
    return out;
  } else if constexpr (Sequence<T>) {
    T out;
    size_t count = in.ReadArrayHead();
    if constexpr (requires { out.reserve(count); }) out.reserve(std::min(count, kReserveAtOnce));
    for (; count > 0; --count) out.push_back(Read<typename T::value_type>(in));
    return out;
  } else if constexpr (EmptyStruct<T>) {
    in.ReadArrayHead(0);
    return T{};
  } else {
    static_assert(Plain<T>);
    in.ReadArrayHead(boost::pfr::tuple_size_v<T>);
    return ReadFields<T>(in, std::make_index_sequence<boost::pfr::tuple_size_v<T>>());
  }
}

template <class T>
T Read(Decoder& in) {
  static_assert(
      Serializable<T>,
      "sheaf: this type cannot travel between processes (see sheaf/serialize.h for what can)");
  if constexpr (std::same_as<T, bool>) {
    return in.ReadBool();
  } else if constexpr (Number<T>) {
    return ReadNumber<T>(in);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(Read<std::underlying_type_t<T>>(in));
  } else if constexpr (std::same_as<T, std::string>) {
    return std::string(in.ReadText());
  } else if constexpr (NumberVector<T>) {
    return ReadNumberVector<typename T::value_type>(in);
  } else if constexpr (NumberArray<T>) {
    return ReadArray<typename T::value_type>(in);
  } else if constexpr (std::same_as<T, std::monostate>) {
    in.ReadNil();
    return {};
  } else if constexpr (kIsDuration<T>) {
    return T(Read<typename T::rep>(in));
  } else if constexpr (kIsSystemTime<T>) {
    return T(Read<typename T::duration>(in));
  } else if constexpr (kIs<T, ObjectRef>) {
    return T::FromHandle(in.ReadReference(kExtObject));
  } else if constexpr (kIs<T, ActorHandle>) {
    return T::FromHandle(in.ReadReference(kExtActor));
  } else if constexpr (Serializable<T>) {
    in.Enter();
    T out = ReadCompound<T>(in);
    in.Leave();
    return out;
  }
}

// The whole of one value. T may be void: nothing is read.
template <class T>
T ReadValue(std::string_view bytes, const Source* source) {
  if constexpr (!std::is_void_v<T>) {
    Decoder in(bytes, source);
    T out = Read<T>(in);
    in.Finish();
    return out;
  }
}

}  // namespace sheaf::inline v1::internal
