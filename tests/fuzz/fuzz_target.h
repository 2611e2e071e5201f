// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a fuzz target defines: one entry point in libFuzzer's form, and well-formed inputs to begin
// from. Two mains call it: libFuzzer's, with clang's coverage guidance (`./do fuzz TARGET`), and
// plain_main.cc, which mutates by a seed and is what the tests run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

// Reads `data` as the target's parser would. Returns 0; a finding ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fuzz {

std::vector<std::string> Seeds();

// Takes numbers and bytes from the front of an input; zeros when it is at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  uint32_t Short() { return Byte() | uint32_t{Byte()} << 8; }
  // At most `most` bytes, in memory of their own of exactly that size, so that a sanitizer sees
  // each byte beyond.
  std::string Bytes(size_t most) {
    const std::string_view part = rest_.substr(0, most);
    rest_.remove_prefix(part.size());
    std::string copy(part);
    copy.shrink_to_fit();
    return copy;
  }
  std::string Rest() { return Bytes(rest_.size()); }

 private:
  std::string_view rest_;
};

// The same the other way round, for seeds: a frame as Input::Byte, Short and Bytes(Short) read it.
inline std::string FrameOf(uint8_t from, uint8_t kind, std::string_view body) {
  std::string out;
  out.push_back(static_cast<char>(from));
  out.push_back(static_cast<char>(kind));
  out.push_back(static_cast<char>(body.size() & 0xff));
  out.push_back(static_cast<char>(body.size() >> 8));
  out.append(body);
  return out;
}

// A finding that no sanitizer would see.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

}  // namespace fuzz
