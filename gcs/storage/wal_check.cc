// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/storage/wal_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace sheaf {
namespace {

// The format: https://sqlite.org/fileformat2.html, section 4. All fields are big-endian.
//   header  32 bytes: magic version page_size checkpoint salt1 salt2 sum1 sum2
//   frame   24 bytes: page_number pages_after_commit(0: no commit) salt1 salt2 sum1 sum2,
//           then the page
// A frame's sums continue those of the frame before it.
constexpr size_t kHeaderSize = 32;
constexpr size_t kFrameHeaderSize = 24;
constexpr uint32_t kMagic = 0x377f0682;  // Plus 1: sums over big-endian words.

uint32_t BigEndian(const char* at) {
  uint32_t value;
  std::memcpy(&value, at, 4);
  return __builtin_bswap32(value);
}

struct Sums {
  uint32_t first = 0;
  uint32_t second = 0;
  friend bool operator==(const Sums&, const Sums&) = default;
};

Sums Continue(Sums sums, std::string_view bytes, bool big_endian) {
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    uint32_t a;
    uint32_t b;
    std::memcpy(&a, bytes.data() + i, 4);
    std::memcpy(&b, bytes.data() + i + 4, 4);
    if (big_endian) {
      a = __builtin_bswap32(a);
      b = __builtin_bswap32(b);
    }
    sums.first += a + sums.second;
    sums.second += b + sums.first;
  }
  return sums;
}

class Log {
 public:
  Log(int fd, uint32_t page_size, bool big_endian, std::string_view salts)
      : fd_(fd), big_endian_(big_endian), salts_(salts), frame_(kFrameHeaderSize + page_size) {}

  // False: the file ends before a whole frame `index`.
  bool Read(size_t index) {
    const off_t offset = static_cast<off_t>(Offset(index));
    return pread(fd_, frame_.data(), frame_.size(), offset) == static_cast<ssize_t>(frame_.size());
  }
  size_t Offset(size_t index) const { return kHeaderSize + index * frame_.size(); }
  bool SaltsMatch() const { return std::string_view(frame_.data() + 8, 8) == salts_; }
  bool is_commit() const { return BigEndian(frame_.data() + 4) != 0; }
  Sums stored() const { return {BigEndian(frame_.data() + 16), BigEndian(frame_.data() + 20)}; }
  bool Follows(Sums before) const {
    const std::string_view bytes(frame_.data(), frame_.size());
    const Sums sums = Continue(before, bytes.substr(0, 8), big_endian_);
    return SaltsMatch() && Continue(sums, bytes.substr(kFrameHeaderSize), big_endian_) == stored();
  }

 private:
  const int fd_;
  const bool big_endian_;
  const std::string salts_;
  std::vector<char> frame_;
};

}  // namespace

absl::Status CheckWriteAheadLog(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  char header[kHeaderSize];
  const ssize_t size = pread(file.get(), header, sizeof header, 0);
  if (size < static_cast<ssize_t>(sizeof header)) return absl::OkStatus();  // Never completed.
  const std::string_view bytes(header, sizeof header);
  const bool all_zero = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
  const uint32_t magic = BigEndian(header);
  const uint32_t page_size = BigEndian(header + 8);
  const bool big_endian = (magic & 1) != 0;
  Sums sums = {BigEndian(header + 24), BigEndian(header + 28)};
  const bool plausible = (magic & ~1u) == kMagic && page_size >= 512 && page_size <= 65536 &&
                         (page_size & (page_size - 1)) == 0;
  if (!plausible || Continue({}, bytes.substr(0, 24), big_endian) != sums) {
    // 32 bytes of one sector are not torn: either the file was extended and never filled, or a bit
    // has changed.
    if (all_zero) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path, ": damaged header at offset 0"));
  }
  Log log(file.get(), page_size, big_endian, bytes.substr(16, 8));
  size_t index = 0;
  for (; log.Read(index) && log.Follows(sums); ++index) sums = log.stored();
  // Frame `index` is bad or the end. A transaction is synced before the next one begins: so the
  // frame after a commit proves that the transactions before it were complete. Left-overs of an
  // older log do not follow one another so.
  const size_t bad = index;
  bool after_commit = false;
  for (; log.Read(index); ++index) {
    if (index > bad && after_commit && log.Follows(sums)) {
      return absl::DataLossError(absl::StrCat(path, ": damaged frame at offset ", log.Offset(bad),
                                              ", and completed transactions behind it"));
    }
    sums = log.stored();
    after_commit = log.is_commit() && (index == bad || log.SaltsMatch());
  }
  return absl::OkStatus();
}

}  // namespace sheaf
