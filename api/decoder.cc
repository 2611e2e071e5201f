// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "sheaf/internal/decoder.h"

namespace sheaf::inline v1::internal {
namespace {

const char* KindName(NumberKind kind) {
  switch (kind) {
    case NumberKind::kInt8:
      return "int8";
    case NumberKind::kInt16:
      return "int16";
    case NumberKind::kInt32:
      return "int32";
    case NumberKind::kInt64:
      return "int64";
    case NumberKind::kUint8:
      return "uint8";
    case NumberKind::kUint16:
      return "uint16";
    case NumberKind::kUint32:
      return "uint32";
    case NumberKind::kUint64:
      return "uint64";
    case NumberKind::kFloat32:
      return "float32";
    case NumberKind::kFloat64:
      return "float64";
  }
  return "unknown numbers";
}

}  // namespace

void Decoder::Fail(const char* what) {
  throw SerializationError(std::string("these bytes are not the expected value: ") + what);
}

void Decoder::OpenOutOfBand() {
  OutOfBandHead head;
  if (value_.size() < sizeof(head)) Fail("too short");
  std::memcpy(&head, value_.data(), sizeof(head));
  if (head.version == 2) {
    Fail(
        "it is a pickle, which only Python reads; what C++ shall read is None, bool, int, float, "
        "str, bytes, lists, dicts and arrays of numbers");
  }
  if (head.version != 1) Fail("written by another version of Sheaf");
  const size_t entries = size_t{head.buffer_count} * sizeof(BufferEntry);
  if (value_.size() - sizeof(head) < entries + head.body_bytes) Fail("too short");
  buffer_count_ = head.buffer_count;
  buffers_ = value_.data() + sizeof(head);
  position_ = buffers_ + entries;
  end_ = position_ + head.body_bytes;
}

uint8_t Decoder::Byte() {
  if (position_ == end_) Fail("too short");
  return static_cast<uint8_t>(*position_++);
}

std::string_view Decoder::Take(uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(end_ - position_)) Fail("too short");
  const std::string_view out(position_, bytes);
  position_ += bytes;
  return out;
}

uint64_t Decoder::BigEndian(int bytes) {
  uint64_t out = 0;
  for (const char c : Take(bytes)) out = out << 8 | static_cast<uint8_t>(c);
  return out;
}

bool Decoder::ReadBool() {
  const uint8_t tag = Byte();
  if ((tag & 0xfe) != 0xc2) Fail("want true or false");
  return tag == 0xc3;
}

void Decoder::ReadNil() {
  if (Byte() != 0xc0) Fail("want nil");
}

int64_t Decoder::ReadSignedSlow(int64_t low, int64_t high) {
  const uint8_t tag = Byte();
  int64_t value = 0;
  if (tag <= 0x7f || tag >= 0xe0) {
    value = static_cast<int8_t>(tag);
  } else if (tag >= 0xcc && tag <= 0xcf) {
    const uint64_t bits = BigEndian(1 << (tag - 0xcc));
    if (bits > INT64_MAX) Fail("a number out of range");
    value = static_cast<int64_t>(bits);
  } else if (tag >= 0xd0 && tag <= 0xd3) {
    const int bytes = 1 << (tag - 0xd0);
    const int unused_bits = 64 - 8 * bytes;
    value = static_cast<int64_t>(BigEndian(bytes) << unused_bits) >> unused_bits;
  } else {
    Fail("want an integer");
  }
  if (value < low || value > high) Fail("a number out of range");
  return value;
}

uint64_t Decoder::ReadUnsignedSlow(uint64_t high) {
  uint64_t value = 0;
  if (position_ != end_ && static_cast<uint8_t>(*position_) >= 0xcc &&
      static_cast<uint8_t>(*position_) <= 0xcf) {
    value = BigEndian(1 << (Byte() - 0xcc));
  } else {
    value = static_cast<uint64_t>(ReadSignedSlow(0, INT64_MAX));
  }
  if (value > high) Fail("a number out of range");
  return value;
}

double Decoder::ReadDoubleSlow() {
  if (position_ == end_) Fail("too short");
  const uint8_t tag = static_cast<uint8_t>(*position_);
  if (tag == 0xca) {
    ++position_;
    return std::bit_cast<float>(static_cast<uint32_t>(BigEndian(4)));
  }
  if (tag == 0xcb) {
    ++position_;
    return std::bit_cast<double>(BigEndian(8));
  }
  if (tag == 0xcf) return static_cast<double>(ReadUnsignedSlow(UINT64_MAX));
  return static_cast<double>(ReadSignedSlow(INT64_MIN, INT64_MAX));
}

std::string_view Decoder::ReadText() {
  const uint8_t tag = Byte();
  if (tag >= 0xa0 && tag <= 0xbf) return Take(tag & 0x1f);
  if (tag >= 0xd9 && tag <= 0xdb) return Take(BigEndian(1 << (tag - 0xd9)));
  Fail("want a string");
}

size_t Decoder::ReadArrayHead() {
  uint8_t tag = Byte();
  if (tag == 0xc7 && end_ - position_ >= 2 && position_[0] == 0 && position_[1] == kExtTuple) {
    position_ += 2;
    tag = Byte();
  }
  uint64_t count = 0;
  if (tag >= 0x90 && tag <= 0x9f) {
    count = tag & 0xf;
  } else if (tag == 0xdc || tag == 0xdd) {
    count = BigEndian(tag == 0xdc ? 2 : 4);
  } else {
    Fail("want a list or struct");
  }
  if (count > static_cast<uint64_t>(end_ - position_)) Fail("too short");
  return count;
}

void Decoder::ReadArrayHead(size_t wanted) {
  if (ReadArrayHead() != wanted) Fail("a struct or tuple with another number of fields");
}

size_t Decoder::ReadMapHead() {
  const uint8_t tag = Byte();
  uint64_t count = 0;
  if (tag >= 0x80 && tag <= 0x8f) {
    count = tag & 0xf;
  } else if (tag == 0xde || tag == 0xdf) {
    count = BigEndian(tag == 0xde ? 2 : 4);
  } else {
    Fail("want a map");
  }
  if (2 * count > static_cast<uint64_t>(end_ - position_)) Fail("too short");
  return count;
}

std::pair<int8_t, std::string_view> Decoder::ReadExt() {
  const uint8_t tag = Byte();
  uint64_t bytes = 0;
  if (tag >= 0xd4 && tag <= 0xd8) {
    bytes = uint64_t{1} << (tag - 0xd4);
  } else if (tag >= 0xc7 && tag <= 0xc9) {
    bytes = BigEndian(1 << (tag - 0xc7));
  } else {
    Fail("want numbers or a reference");
  }
  const int8_t type = static_cast<int8_t>(Byte());
  return {type, Take(bytes)};
}

bool Decoder::ReadNumbers(NumberKind kind, std::span<const char>* numbers) {
  if (position_ == end_) Fail("too short");
  const uint8_t tag = static_cast<uint8_t>(*position_);
  const size_t element_bytes = static_cast<uint8_t>(kind) & 0xf;
  std::string_view bytes;
  if (tag >= 0xc4 && tag <= 0xc6 && element_bytes == 1) {  // msgpack's own form of bytes.
    ++position_;
    bytes = Take(BigEndian(1 << (tag - 0xc4)));
  } else if ((tag >= 0xd4 && tag <= 0xd8) || (tag >= 0xc7 && tag <= 0xc9)) {
    const auto [type, content] = ReadExt();
    if ((type != kExtArray && type != kExtBuffer) || content.empty())
      Fail("want an array of numbers");
    const NumberKind found = static_cast<NumberKind>(content[0]);
    if (found != kind) {
      throw SerializationError(std::string("an array of ") + KindName(found) +
                               " cannot be read as " + KindName(kind));
    }
    bytes = content.substr(1);
    if (type == kExtBuffer) {
      uint32_t index = 0;
      if (bytes.size() != sizeof(index)) Fail("a malformed array");
      std::memcpy(&index, bytes.data(), sizeof(index));
      if (index >= buffer_count_) Fail("an array that is not there");
      BufferEntry entry;
      std::memcpy(&entry, buffers_ + index * sizeof(entry), sizeof(entry));
      if (entry.offset > value_.size() || entry.bytes > value_.size() - entry.offset)
        Fail("too short");
      bytes = value_.substr(entry.offset, entry.bytes);
    }
  } else {
    return false;
  }
  if (bytes.size() % element_bytes != 0) Fail("a malformed array");
  *numbers = {bytes.data(), bytes.size()};
  return true;
}

Handle Decoder::ReadReference(ExtType type) {
  const auto [found, content] = ReadExt();
  NestedForm form;
  if (found != type || content.size() != sizeof(form))
    Fail("want a reference to an object or actor");
  std::memcpy(&form, content.data(), sizeof(form));
  RawId id;
  std::memcpy(&id, form.id, sizeof(id));
  if (source_ == nullptr) Fail("a reference outside of the cluster");
  return ReferenceIn(source_, form.index, id);
}

}  // namespace sheaf::inline v1::internal
