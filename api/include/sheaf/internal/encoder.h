// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values to bytes. Format: the msgpack form of the value; structs and tuples are arrays. Ext types:
// see ExtType. Arrays of numbers above kInlineArrayBytes lie outside, as raw memory, and then the
// value is
//   OutOfBandHead | BufferEntry[buffer_count] | msgpack | zeros | buffer | zeros | buffer ...
// with each buffer at a multiple of 64 from the start. Numbers are little-endian.
#pragma once

#include <bit>
#include <cstring>
#include <memory>
#include <msgpack/pack.hpp>
#include <vector>

#include <boost/pfr/core.hpp>

#include "sheaf/errors.h"
#include "sheaf/internal/handle.h"
#include "sheaf/internal/type_traits.h"

namespace sheaf::inline v1::internal {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint8_t kOutOfBandMark = 0xc1;  // The one byte with which no msgpack value begins.
struct OutOfBandHead {
  uint8_t mark = kOutOfBandMark;
  uint8_t version = 1;
  uint16_t buffer_count = 0;
  uint32_t body_bytes = 0;
};
struct BufferEntry {
  uint64_t offset;  // From the start of the value; a multiple of 64.
  uint64_t bytes;
};
static_assert(sizeof(OutOfBandHead) == 8 && sizeof(BufferEntry) == 16);

enum ExtType : int8_t {
  kExtArray = 1,   // NumberKind, then the numbers.
  kExtBuffer = 2,  // NumberKind, then the index of a buffer, 4 bytes.
  kExtObject = 3,  // Index among the value's nested references, 4 bytes; the object's id, 16 bytes.
  kExtActor = 4,   // The same, of the actor's creation object.
  kExtTuple = 5,   // No bytes. Of Python: the array that follows is a tuple.
};
struct NestedForm {
  uint32_t index;
  char id[16];
};
static_assert(sizeof(NestedForm) == 20);

inline constexpr size_t kInlineArrayBytes = 256;
inline constexpr size_t kMaxBuffers = 0xffff;
inline constexpr int kMaxDepth = 200;  // Of values inside values: a C++ stack bears this.

// A value in the making. Keeps pointers to the arrays and references of the value until CopyTo, so
// the value outlives it.
class SHEAF_API Encoder {
 public:
  Encoder() : position_(local_), begin_(local_), end_(local_ + sizeof(local_)) {}
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // msgpack's stream.
  void write(const char* data, size_t size) {
    if (static_cast<size_t>(end_ - position_) < size) [[unlikely]]
      Grow(size);
    std::memcpy(position_, data, size);
    position_ += size;
  }
  msgpack::packer<Encoder> packer() { return msgpack::packer<Encoder>(*this); }
  void WriteNumbers(NumberKind kind, const void* data, size_t bytes);
  void WriteReference(ExtType type, const Handle& handle);
  void Enter() {
    if (++depth_ > kMaxDepth) [[unlikely]]
      ThrowTooDeep();
  }
  void Leave() { --depth_; }
  // Keeps a part that exists only for the encoding alive until CopyTo.
  template <class T>
  const T& Keep(T part) {
    auto kept = std::make_shared<const T>(std::move(part));
    kept_.push_back(kept);
    return *kept;
  }

  // Of the whole value.
  size_t size() const { return buffers_.empty() ? body_bytes() : SizeWithBuffers(); }
  // `cold`: to shared memory whose pages this process has not entered.
  void CopyTo(char* out, bool cold = false) const;
  // The whole value when there are no buffers.
  const char* body() const { return begin_; }
  size_t body_bytes() const { return static_cast<size_t>(position_ - begin_); }
  bool has_buffers() const { return !buffers_.empty(); }
  // Borrowed from the value.
  const std::vector<ObjectEntry*>& nested() const { return nested_; }

 private:
  struct Segment {
    const void* data;
    size_t bytes;
  };
  void Grow(size_t size);
  [[noreturn]] static void ThrowTooDeep();
  size_t SizeWithBuffers() const;

  char* position_;
  char* begin_;
  char* end_;
  std::unique_ptr<char[]> heap_;
  std::vector<Segment> buffers_;
  std::vector<ObjectEntry*> nested_;
  std::vector<std::shared_ptr<const void>> kept_;
  int depth_ = 0;
  char local_[448];
};

// The head of a value that is nothing but one array: its numbers begin at byte kArrayHeadBytes.
inline constexpr size_t kArrayHeadBytes = 64;
SHEAF_API void WriteArrayHead(char* out, NumberKind kind, uint64_t bytes);

// Up to 9 bytes: a number, bool or enum, packed without a stream on the heap.
struct SmallStream {
  char bytes[16];
  size_t size = 0;
  void write(const char* data, size_t count) {
    std::memcpy(bytes + size, data, count);
    size += count;
  }
};

template <class T>
concept Scalar = Number<T> || std::same_as<T, bool> || std::is_enum_v<T>;

template <Scalar T, class Stream>
inline void WriteScalar(Stream& stream, T value) {
  msgpack::packer<Stream> pack(stream);
  if constexpr (std::same_as<T, bool>) {
    value ? pack.pack_true() : pack.pack_false();
  } else if constexpr (std::is_enum_v<T>) {
    WriteScalar(stream, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::same_as<T, float>) {
    pack.pack_float(value);
  } else if constexpr (std::same_as<T, double>) {
    pack.pack_double(value);
  } else if constexpr (std::is_signed_v<T>) {
    pack.pack_int64(static_cast<int64_t>(value));
  } else {
    pack.pack_uint64(static_cast<uint64_t>(value));
  }
}

template <class T>
void Write(Encoder& out, const T& value);

inline void WriteText(Encoder& out, std::string_view text) {
  if (text.size() > UINT32_MAX) throw SerializationError("a string of more than 4 GiB");
  out.packer()
      .pack_str(static_cast<uint32_t>(text.size()))
      .pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

inline void WriteArrayHead(Encoder& out, size_t count) {
  if (count > UINT32_MAX) throw SerializationError("a container of more than 4 billion elements");
  out.packer().pack_array(static_cast<uint32_t>(count));
}

template <class T>
inline void WriteField(Encoder& out, const T& field) {
  static_assert(Serializable<T>,
                "sheaf: a field of this struct cannot travel between processes (see "
                "sheaf/serialize.h for what can)");
  if constexpr (Serializable<T>) Write(out, field);
}

// `value` is Serializable, or a std::span of numbers or std::string_view, which travel as what they
// view.
template <class T>
void Write(Encoder& out, const T& value) {
  if constexpr (Scalar<T>) {
    WriteScalar(out, value);
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    WriteText(out, value);
  } else if constexpr (NumberVector<T> || NumberSpan<T> || NumberArray<T>) {
    out.WriteNumbers(
        KindOf<std::remove_const_t<std::remove_reference_t<decltype(*value.data())>>>(),
        value.data(), value.size() * sizeof(*value.data()));
  } else if constexpr (std::same_as<T, std::monostate>) {
    out.packer().pack_nil();
  } else if constexpr (kIsDuration<T>) {
    WriteScalar(out, value.count());
  } else if constexpr (kIsSystemTime<T>) {
    WriteScalar(out, value.time_since_epoch().count());
  } else if constexpr (kIs<T, ObjectRef>) {
    out.WriteReference(kExtObject, value.handle());
  } else if constexpr (kIs<T, ActorHandle>) {
    out.WriteReference(kExtActor, value.handle());
  } else {
    out.Enter();
    if constexpr (Custom<T>) {
      static_assert(Serializable<CustomForm<T>>,
                    "sheaf: what ToSheaf returns cannot travel between processes");
      Write(out, out.Keep<CustomForm<T>>(value.ToSheaf()));
    } else if constexpr (kIs<T, std::optional> || Pointer<T>) {
      // One element or none, so that an optional of an optional keeps its levels.
      WriteArrayHead(out, value ? 1 : 0);
      if (value) Write(out, *value);
    } else if constexpr (kIs<T, std::variant>) {
      if (value.valueless_by_exception()) throw SerializationError("a variant without a value");
      WriteArrayHead(out, 2);
      WriteScalar(out, static_cast<uint64_t>(value.index()));
      std::visit([&out](const auto& alternative) { WriteField(out, alternative); }, value);
    } else if constexpr (kIs<T, std::pair> || kIs<T, std::tuple>) {
      WriteArrayHead(out, std::tuple_size_v<T>);
      std::apply([&out](const auto&... element) { (WriteField(out, element), ...); }, value);
    } else if constexpr (Map<T>) {
      if (value.size() > UINT32_MAX)
        throw SerializationError("a map of more than 4 billion elements");
      out.packer().pack_map(static_cast<uint32_t>(value.size()));
      for (const auto& [key, mapped] : value) {
        Write(out, key);
        Write(out, mapped);
      }
    } else if constexpr (std::same_as<T, std::vector<bool>>) {
      WriteArrayHead(out, value.size());
      for (const bool element : value) WriteScalar(out, element);
    } else if constexpr (Set<T> || Sequence<T> || kIsStdArray<T>) {
      WriteArrayHead(out, value.size());
      for (const auto& element : value) WriteField(out, element);
    } else if constexpr (EmptyStruct<T>) {
      WriteArrayHead(out, 0);
    } else {
      static_assert(Plain<T>);
      WriteArrayHead(out, boost::pfr::tuple_size_v<T>);
      boost::pfr::for_each_field(value, [&out](const auto& field) { WriteField(out, field); });
    }
    out.Leave();
  }
}

}  // namespace sheaf::inline v1::internal
