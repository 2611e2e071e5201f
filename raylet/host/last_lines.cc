// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_split.h"
#include "base/unique_fd.h"

namespace sheaf {
namespace {

constexpr off_t kLookBack = 16 * 1024;
constexpr size_t kLongestLine = 500;

// The length of the UTF-8 sequence at the start of `text`, or 0 when there is none.
size_t SequenceLength(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : (lead & 0xf0) == 0xe0       ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const auto second = length > 1 ? static_cast<uint8_t>(text[1]) : 0;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool beyond = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

}  // namespace

std::string ToValidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      result.push_back('?');
      text.remove_prefix(1);
    } else {
      result.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return result;
}

std::vector<std::string> LastLines(const std::string& path, size_t count) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0) return {};
  const off_t start = std::max<off_t>(info.st_size - kLookBack, 0);
  std::string text(static_cast<size_t>(info.st_size - start), '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), start);
  text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return {};
  std::vector<std::string> lines;
  const std::vector<absl::string_view> all = absl::StrSplit(text, '\n');
  for (size_t i = all.size() - std::min(count, all.size()); i < all.size(); ++i) {
    lines.push_back(ToValidUtf8({all[i].data(), std::min(all[i].size(), kLongestLine)}));
  }
  return lines;
}

}  // namespace sheaf
