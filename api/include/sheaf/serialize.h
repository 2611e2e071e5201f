// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values as bytes, as they travel between processes: msgpack, with arrays of numbers as raw memory
// beside it.
//
// Without a macro travel: numbers, bool, enums, std::string; the standard containers, optional,
// variant, pair, tuple, unique_ptr and shared_ptr (as optional values), chrono durations and system
// times; Array<T>; ObjectRef<T> and ActorHandle<C> at any place inside a value; and plain structs
// of these: public fields (at most 100), no base class, no constructor, no C array (use
// std::array). Any other class travels when it has
//     Form ToSheaf() const;                // A value that can travel,
//     static Class FromSheaf(Form form);   // and back.
// `Serializable<T>` is the test. Structs are recognised by position, not by name: both ends need
// the same fields.
#pragma once

#include <string>
#include <string_view>

#include "sheaf/internal/decoder.h"
#include "sheaf/internal/encoder.h"

namespace sheaf::inline v1 {

// The bytes of a value, for files and sockets of your own. Throws SerializationError when the value
// holds references to objects, which cannot leave the cluster.
template <class T>
std::string Serialize(const T& value) {
  static_assert(
      Serializable<T>,
      "sheaf: this type cannot travel between processes (see sheaf/serialize.h for what can)");
  internal::Encoder encoder;
  internal::Write(encoder, value);
  if (!encoder.nested().empty())
    throw SerializationError("references to objects cannot be kept outside of the cluster");
  std::string out(encoder.size(), '\0');
  encoder.CopyTo(out.data());
  return out;
}

// The value of bytes that Serialize made. Throws SerializationError when they are no T.
template <class T>
T Deserialize(std::string_view bytes) {
  return internal::ReadValue<T>(bytes, nullptr);
}

}  // namespace sheaf::inline v1
