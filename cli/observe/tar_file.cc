// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/tar_file.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace sheaf::cli {
namespace {

constexpr size_t kBlock = 512;

// Of a file, in texts; what follows `prefix` stays zeros.
struct TarHead {
  std::array<char, 100> name;
  std::array<char, 8> mode, uid, gid;
  std::array<char, 12> size, time;
  std::array<char, 8> sum;
  char type;
  std::array<char, 100> link;
  std::array<char, 8> magic;  // "ustar", NUL, "00".
  std::array<char, 32> user, group;
  std::array<char, 8> major, minor;
  std::array<char, 155> prefix;
  std::array<char, 12> padding;
};
static_assert(sizeof(TarHead) == kBlock && offsetof(TarHead, sum) == 148);

template <size_t N>
void Put(std::array<char, N>& field, std::string_view text) {
  text.copy(field.data(), N);
}

}  // namespace

void TarFile::Add(std::string_view name, std::string_view bytes) {
  TarHead head{};
  std::string shown(name.substr(0, head.name.size()));
  for (char& letter : shown) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter)) &&
        std::string_view("._-/").find(letter) == std::string_view::npos)
      letter = '_';
  }
  Put(head.name, shown);
  Put(head.mode, "0000600");
  Put(head.uid, "0000000");
  Put(head.gid, "0000000");
  Put(head.size, absl::StrFormat("%011o", bytes.size()));
  Put(head.time, absl::StrFormat("%011o", unix_s_));
  head.type = '0';
  Put(head.magic, std::string_view("ustar\0"
                                   "00",
                                   8));
  Put(head.sum, "        ");
  const auto* const letters = reinterpret_cast<const unsigned char*>(&head);
  unsigned sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += letters[i];
  Put(head.sum, absl::StrFormat("%06o", sum));
  head.sum[6] = '\0';
  bytes_.append(reinterpret_cast<const char*>(&head), kBlock);
  bytes_.append(bytes);
  bytes_.append((kBlock - bytes.size() % kBlock) % kBlock, '\0');
}

std::string TarFile::Done() && {
  bytes_.append(2 * kBlock, '\0');
  return std::move(bytes_);
}

}  // namespace sheaf::cli
