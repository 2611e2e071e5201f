// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr size_t kChunk = 64 * 1024;
constexpr uint64_t kMarkedBytes = 256;
constexpr int kMaxBackups = 9;
constexpr size_t kMaxGlob = 255;
constexpr uint64_t kMaxMore = 256 << 20;  // That a copy takes of what is written meanwhile.

// Ray's group of a file.
const char* GroupOf(std::string_view name) {
  if (name.starts_with("worker-"))
    return name.find(".err") == std::string_view::npos ? "worker_out" : "worker_err";
  if (name.starts_with("job-")) return "driver";
  if (name.starts_with("node.")) return "raylet";
  if (name.starts_with("gcs.")) return "gcs_server";
  if (name.starts_with("dashboard")) return "dashboard";
  return "internal";
}

absl::Status CheckName(std::string_view name) {
  const bool is_plain = !name.empty() && name.front() != '.' &&
                        name.find('/') == std::string_view::npos &&
                        name.find('\0') == std::string_view::npos;
  if (is_plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", absl::CHexEscape(absl::string_view(name.data(), std::min<size_t>(name.size(), 200))),
      "' is no name of a log: want one without directories"));
}

// Follows no link: what workers put there may lead anywhere.
UniqueFd OpenPlain(const std::string& path, int mode, struct stat* info) {
  UniqueFd fd(open(path.c_str(), mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.valid() && (fstat(fd.get(), info) != 0 || !S_ISREG(info->st_mode))) fd.Reset();
  return fd;
}

std::string BackupOf(const std::string& path, int number) {
  return number == 0 ? path : absl::StrCat(path, ".", number);
}

// As much as there is, `bytes` at most.
std::string ReadAt(int fd, uint64_t from, uint64_t bytes) {
  std::string out(bytes, '\0');
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t n = pread(fd, out.data() + got, out.size() - got, static_cast<off_t>(from + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  out.resize(got);
  return out;
}

// From `begin` on, to the end, also what comes meanwhile, but `most` bytes at most. How many it were.
absl::StatusOr<uint64_t> Copy(int from, int to, uint64_t begin, uint64_t most) {
  std::string buffer(kChunk, '\0');
  uint64_t copied = 0;
  while (copied < most) {
    const ssize_t n = pread(from, buffer.data(), std::min<uint64_t>(buffer.size(), most - copied),
                            static_cast<off_t>(begin + copied));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "a log cannot be read");
    if (n == 0) break;
    for (ssize_t written = 0; written < n;) {
      const ssize_t m = write(to, buffer.data() + written, static_cast<size_t>(n - written));
      if (m < 0 && errno == EINTR) continue;
      if (m < 0) return absl::ErrnoToStatus(errno, "a log cannot be copied");
      written += m;
    }
    copied += static_cast<uint64_t>(n);
  }
  return copied;
}

// How much of a file can be cut off its front: whole blocks, at most `most` bytes, and not all.
uint64_t FrontOf(const struct stat& info, uint64_t most) {
  const auto block = static_cast<uint64_t>(std::max<blksize_t>(info.st_blksize, 1));
  const auto bytes = static_cast<uint64_t>(info.st_size);
  return bytes == 0 ? 0 : std::min(most, bytes - 1) / block * block;
}

// Takes the first `bytes` of a file out of it at once, whoever appends to it: ext4 and XFS can.
bool CutFront(int fd, uint64_t bytes) {
  if (bytes == 0) return false;
  int cut;
  do {
    cut = fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, static_cast<off_t>(bytes));
  } while (cut != 0 && errno == EINTR);
  return cut == 0;
}

}  // namespace

std::string LogFiles::PathOf(std::string_view name) const {
  return absl::StrCat(directory_, "/", std::string(name));
}

absl::Status LogFiles::List(const std::string& glob, proto::StateAnswer* answer) const {
  if (glob.size() > kMaxGlob)
    return absl::InvalidArgumentError(absl::StrCat("a glob has at most ", kMaxGlob, " bytes"));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(directory_.c_str()), closedir);
  if (directory == nullptr) return absl::ErrnoToStatus(errno, directory_);
  google::protobuf::RepeatedPtrField<proto::LogFile>& files = *answer->mutable_log_files();
  while (const dirent* const entry = readdir(directory.get())) {
    const std::string name = entry->d_name;
    struct stat info;
    if (!CheckName(name).ok() || (!glob.empty() && fnmatch(glob.c_str(), name.c_str(), 0) != 0) ||
        fstatat(dirfd(directory.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (static_cast<size_t>(files.size()) >= kMaxLogNames) {
      answer->set_truncated(true);
      break;
    }
    proto::LogFile& file = *files.Add();
    file.set_name(name);
    file.set_group(GroupOf(name));
    file.set_size_bytes(static_cast<uint64_t>(info.st_size));
    file.set_modified_unix_s(info.st_mtime);
  }
  std::sort(files.begin(), files.end(),
            [](const proto::LogFile& a, const proto::LogFile& b) { return a.name() < b.name(); });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LogFiles::Part>> LogFiles::Open(std::string_view name) const {
  SHEAF_RETURN_IF_ERROR(CheckName(name));
  const std::string path = PathOf(name);
  std::vector<Part> parts;  // The newest first, for now.
  for (int number = 0; number <= kMaxBackups; ++number) {
    struct stat info;
    UniqueFd fd = OpenPlain(BackupOf(path, number), O_RDONLY, &info);
    if (!fd.valid()) break;
    parts.push_back({std::move(fd), 0, static_cast<uint64_t>(info.st_size)});
  }
  if (parts.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no log '",
                                            absl::CHexEscape(std::string(name)),
                                            "'; sheaf logs lists those of a node"));
  }
  uint64_t older = 0;
  for (size_t i = 1; i < parts.size(); ++i) older += parts[i].bytes;
  const auto moved = moved_.find(std::string(name));
  uint64_t begin = moved == moved_.end() ? older : std::max(older, moved->second);
  for (Part& part : parts) {
    if (&part != &parts.front()) begin -= part.bytes;
    part.begin = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string LogFiles::ReadRange(const std::vector<Part>& parts, uint64_t from, uint64_t bytes) {
  std::string out;
  for (const Part& part : parts) {
    const uint64_t begin = from + out.size();
    if (begin < part.begin) break;  // A part has become shorter meanwhile.
    if (begin >= part.end()) continue;
    out +=
        ReadAt(part.fd.get(), begin - part.begin, std::min(bytes - out.size(), part.end() - begin));
  }
  return out;
}

uint32_t LogFiles::MarkAt(const std::vector<Part>& parts, uint64_t offset) {
  const uint64_t from = offset > kMarkedBytes ? offset - kMarkedBytes : 0;
  if (from < parts.front().begin) return 0;
  return std::max<uint32_t>(1, Crc32c(ReadRange(parts, from, offset - from)));
}

// Not before `least`.
uint64_t LogFiles::BeginOfLastLines(const std::vector<Part>& parts, uint64_t least,
                                    uint64_t lines) {
  const uint64_t end = parts.back().end();
  uint64_t found = 0;
  for (uint64_t at = end; lines > 0 && at > least;) {  // What is behind `at` is looked at.
    const uint64_t from = at - std::min<uint64_t>(kChunk, at - least);
    const std::string chunk = ReadRange(parts, from, at - from);
    for (size_t i = chunk.size(); i-- > 0;) {
      const bool is_end_of_last = from + i + 1 == end;
      if (chunk[i] == '\n' && !is_end_of_last && ++found == lines) return from + i + 1;
    }
    at = from;
  }
  return lines == 0 ? end : least;
}

bool LogFiles::IsOther(const std::vector<Part>& parts, const proto::LogQuestion& question) {
  if (question.offset() > parts.back().end()) return true;
  if (question.mark() == 0 || question.offset() < parts.front().begin) return false;
  const uint32_t mark = MarkAt(parts, question.offset());
  return mark != 0 && mark != question.mark();
}

absl::StatusOr<proto::LogPiece> LogFiles::Read(const proto::LogQuestion& question) const {
  const MutexLock lock(mutex_);
  SHEAF_ASSIGN_OR_RETURN(const std::vector<Part> parts, Open(question.name()));
  const uint64_t begin = parts.front().begin;
  const uint64_t end = parts.back().end();
  const uint64_t most = question.most_bytes() == 0
                            ? kMaxLogPiece
                            : std::min<uint64_t>(question.most_bytes(), kMaxLogPiece);
  proto::LogPiece piece;
  uint64_t from = std::max(question.offset(), begin);
  if (question.from_end()) {
    const uint64_t least = question.only_file() ? parts.back().begin : begin;
    from = BeginOfLastLines(parts, std::max(least, end - std::min(end, kMaxLogLookBack)),
                            question.lines());
  } else if (IsOther(parts, question)) {
    piece.set_anew(true);
    from = parts.back().begin;
  }
  std::string bytes = ReadRange(parts, from, std::min(most, end - from));
  piece.set_offset(from);
  piece.set_next(from + bytes.size());
  piece.set_left(end - std::min(end, piece.next()));
  piece.set_mark(MarkAt(parts, piece.next()));
  piece.set_bytes(std::move(bytes));
  return piece;
}

absl::StatusOr<uint64_t> LogFiles::Rotate(const std::string& name, int backups, uint64_t most) {
  const std::string path = PathOf(name);
  const MutexLock lock(mutex_);
  struct stat info;
  const UniqueFd from = OpenPlain(path, O_RDWR, &info);
  if (!from.valid()) return absl::NotFoundError(path);
  for (int number = std::min(backups, kMaxBackups) - 1; number > 0; --number) {
    rename(BackupOf(path, number).c_str(), BackupOf(path, number + 1).c_str());
  }
  const std::string backup = BackupOf(path, 1);
  unlink(backup.c_str());
  const UniqueFd to(
      open(backup.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const uint64_t front = FrontOf(info, most);
  absl::StatusOr<uint64_t> copied =
      to.valid() ? Copy(from.get(), to.get(), 0, front) : absl::ErrnoToStatus(errno, backup);
  uint64_t moved = front;
  if (!CutFront(from.get(), front)) {
    if (copied.ok()) {
      copied = Copy(from.get(), to.get(), front, static_cast<uint64_t>(info.st_size) + kMaxMore);
    }
    if (fstat(from.get(), &info) != 0 || ftruncate(from.get(), 0) != 0)
      return absl::ErrnoToStatus(errno, path);
    // What is in no part has no numbers, or those of what is would change.
    moved = copied.ok() ? front + *copied : static_cast<uint64_t>(info.st_size);
  }
  moved_[name] += moved;
  if (!copied.ok()) {
    unlink(backup.c_str());
    Log(LogLevel::kError, "a part of ", name, " is lost: ", copied.status().ToString());
  }
  return moved;
}

uint64_t LogFiles::MovedOut(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto moved = moved_.find(name);
  return moved == moved_.end() ? 0 : moved->second;
}

void LogFiles::Remove(const std::string& name) {
  const MutexLock lock(mutex_);
  for (int number = 0; number <= kMaxBackups; ++number)
    unlink(BackupOf(PathOf(name), number).c_str());
  moved_.erase(name);
}

}  // namespace sheaf
