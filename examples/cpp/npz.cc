// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "npz.h"

#include <zlib.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace examples {
namespace {

// Zip: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12
// and 4.3.16. Numbers are little-endian.
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEntryMagic = 0x02014b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kEntryBytes = 46;
constexpr size_t kLocalBytes = 30;
constexpr size_t kMaxBytes = size_t{1} << 30;  // Of one array.

class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  template <class T>
  T At(size_t offset) const {
    T value;
    std::memcpy(&value, Part(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view Part(size_t offset, size_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) Fail("is cut short");
    return std::string_view(bytes_).substr(offset, size);
  }
  size_t size() const { return bytes_.size(); }
  [[noreturn]] void Fail(const char* what) const { throw std::runtime_error(path_ + ": " + what); }

 private:
  const std::string path_;
  std::string bytes_;
};

std::string Inflate(const File& file, std::string_view packed, size_t size) {
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) file.Fail("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  if (!whole) file.Fail("holds a damaged array");
  return out;
}

// What follows `key` in the header, a Python dict such as {'descr': '<f4', 'fortran_order': False,
// 'shape': (1797, 64), }.
std::string_view After(const File& file, std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) file.Fail("holds something that is no array");
  return header.substr(at + key.size());
}

NpyArray ParseNpy(const File& file, const std::string& npy) {
  if (npy.size() < 12 || npy.compare(0, 6, "\x93NUMPY") != 0)
    file.Fail("holds something that is no array");
  const bool short_head = npy[6] == 1;
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, npy.data() + 8, short_head ? 2 : 4);
  const size_t start = (short_head ? 10 : 12) + size_t{header_bytes};
  if (start > npy.size()) file.Fail("is cut short");
  const std::string_view header = std::string_view(npy).substr(0, start);
  if (After(file, header, "'fortran_order': ").starts_with("True"))
    file.Fail("holds an array in Fortran's order");

  NpyArray array;
  const std::string_view type = After(file, header, "'descr': '");
  array.type = type.substr(0, type.find('\''));
  std::string_view shape = After(file, header, "'shape': (");
  shape = shape.substr(0, shape.find(')'));
  while (!shape.empty()) {
    array.shape.push_back(std::stoull(std::string(shape)));
    const size_t comma = shape.find(',');
    shape = comma == std::string_view::npos ? "" : shape.substr(comma + 1);
    while (shape.starts_with(' ')) shape.remove_prefix(1);
  }
  array.bytes = npy.substr(start);
  return array;
}

template <class T>
std::vector<float> Convert(const NpyArray& array) {
  if (array.bytes.size() != array.size() * sizeof(T))
    throw std::runtime_error("an array is shorter than its shape");
  std::vector<float> out(array.size());
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
  return out;
}

}  // namespace

size_t NpyArray::size() const {
  size_t count = 1;
  for (const size_t side : shape) count *= side;
  return count;
}

std::vector<float> NpyArray::Floats() const {
  if (type == "<f4") return Convert<float>(*this);
  if (type == "<f8") return Convert<double>(*this);
  if (type == "<i4") return Convert<int32_t>(*this);
  if (type == "<i8") return Convert<int64_t>(*this);
  if (type == "|u1") return Convert<uint8_t>(*this);
  throw std::runtime_error("an array of type " + type + ": want <f4, <f8, <i4, <i8 or |u1");
}

std::map<std::string, NpyArray> ReadNpz(const std::string& path) {
  const File file(path);
  if (file.size() < kEndBytes) file.Fail("is no zip archive");
  size_t end = file.size() - kEndBytes;  // A comment may follow the end record.
  while (file.At<uint32_t>(end) != kEndMagic) {
    if (end-- == 0) file.Fail("is no zip archive");
  }
  std::map<std::string, NpyArray> arrays;
  size_t at = file.At<uint32_t>(end + 16);
  for (int left = file.At<uint16_t>(end + 10); left > 0; --left) {
    if (file.At<uint32_t>(at) != kEntryMagic) file.Fail("has a damaged directory");
    const auto method = file.At<uint16_t>(at + 10);
    const size_t packed_bytes = file.At<uint32_t>(at + 20);
    const size_t bytes = file.At<uint32_t>(at + 24);
    const size_t name_bytes = file.At<uint16_t>(at + 28);
    const size_t local = file.At<uint32_t>(at + 42);
    std::string name(file.Part(at + kEntryBytes, name_bytes));
    at += kEntryBytes + name_bytes + file.At<uint16_t>(at + 30) + file.At<uint16_t>(at + 32);
    if (bytes > kMaxBytes) file.Fail("holds an array of more than 1 GiB");
    const size_t data =
        local + kLocalBytes + file.At<uint16_t>(local + 26) + file.At<uint16_t>(local + 28);
    const std::string_view packed = file.Part(data, packed_bytes);
    if (method != 0 && method != 8) file.Fail("is compressed in another way than deflate");
    const std::string npy = method == 0 ? std::string(packed) : Inflate(file, packed, bytes);
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    arrays[name] = ParseNpy(file, npy);
  }
  return arrays;
}

}  // namespace examples
