// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The files that the processes of a node write into one directory. A file that has grown too long
// is made short in place, as its writer has it open and goes on appending: what was in NAME goes to
// NAME.1, what was there to NAME.2, and so on. Together they are one text, of which each byte keeps
// its number; only the oldest part goes. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "proto/raylet.pb.h"

namespace sheaf {

inline constexpr size_t kMaxLogPiece = 1 << 20;
// Of the last lines of a log that is longer.
inline constexpr uint64_t kMaxLogLookBack = uint64_t{64} << 20;
inline constexpr size_t kMaxLogNames = 10'000;

class LogFiles {
 public:
  explicit LogFiles(std::string directory) : directory_(std::move(directory)) {}
  LogFiles(const LogFiles&) = delete;
  LogFiles& operator=(const LogFiles&) = delete;

  const std::string& directory() const { return directory_; }
  std::string PathOf(std::string_view name) const;

  // Those whose names fit `glob` (empty: all), by name; `truncated` where there are more than
  // kMaxLogNames. kInvalidArgument: that is none.
  absl::Status List(const std::string& glob, proto::StateAnswer* answer) const;
  // kInvalidArgument: a name that leads elsewhere. kNotFound: no such file, or not a plain one.
  absl::StatusOr<proto::LogPiece> Read(const proto::LogQuestion& question) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Moves the first bytes of the file out of it, whole blocks of the file system and at most `most`
  // bytes; `backups` (at least 1) of its older parts stay. How many it were. A file of less than a
  // block, or on a file system that cannot cut off the front of a file (tmpfs, btrfs), is copied and
  // emptied whole, and what its writer appends between the two, for some microseconds, is lost.
  // Where the copy fails, as the disk is full, what was to be moved is lost, and a word of it goes to
  // the node's log.
  absl::StatusOr<uint64_t> Rotate(const std::string& name, int backups, uint64_t most = UINT64_MAX)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the log's bytes so many were moved out of the file: its first one has that number.
  uint64_t MovedOut(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Deletes the file with its older parts.
  void Remove(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A file of a log, and which of the log's bytes are in it.
  struct Part {
    UniqueFd fd;
    uint64_t begin = 0;
    uint64_t bytes = 0;

    uint64_t end() const { return begin + bytes; }
  };
  // The oldest first; the last is the file of that name.
  absl::StatusOr<std::vector<Part>> Open(std::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::string ReadRange(const std::vector<Part>& parts, uint64_t from, uint64_t bytes);
  static uint32_t MarkAt(const std::vector<Part>& parts, uint64_t offset);
  // Whether something else than `question` knows stands where it wants to go on.
  static bool IsOther(const std::vector<Part>& parts, const proto::LogQuestion& question);
  static uint64_t BeginOfLastLines(const std::vector<Part>& parts, uint64_t least, uint64_t lines);

  const std::string directory_;
  mutable Mutex mutex_;  // Who reads and who rotates take turns.
  // Of files that were rotated: how much was moved out of them so far.
  absl::flat_hash_map<std::string, uint64_t> moved_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf
