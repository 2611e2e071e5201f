// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What workers print: reads their output files as they grow, hands the lines to the driver of their
// job, and keeps the files small and few. One thread, never a loop that others wait for: it reads
// the disk.
//
// A file over its cap is made short in place (raylet/logs/log_files.h): its writer has it open, and
// appends. So are the output files of submitted commands, which have more older parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "raylet/host/process_launcher.h"
#include "raylet/logs/log_files.h"

namespace sheaf {

struct LogTailerOptions {
  int64_t max_file_bytes = 16 << 20;
  // Of the output of submitted commands, of which so many older parts stay; of a worker's one.
  int64_t max_job_bytes = 16 << 20;
  int job_backups = 4;
  Nanos keep = 24 * 3600 * kSecond;  // Files of ended workers are deleted after this time,
  int64_t max_total_bytes = int64_t{1}
                            << 30;  // or, the oldest first, when all are larger than this.
  // Of one stream to its driver; what comes faster is left out, with a note.
  int64_t bytes_per_poll = 64 << 10;
  size_t max_line_bytes = 16 << 10;  // Longer ones are cut into several.
  // Whether something has yet to read what rotating the file of that name might drop. Such a file is
  // rotated later, but not above kPatience times its size. nullptr: nothing reads.
  std::function<bool(const std::string& name)> is_unread{};
  static constexpr int64_t kPatience = 16;
};

struct LogBatch {
  ProcessId driver;
  proto::LogLines lines;        // Without `name`.
  uint64_t bytes_left_out = 0;  // Came too fast.
};

class LogTailer {
 public:
  // `files` outlives it.
  LogTailer(LogFiles& files, LogTailerOptions options)
      : files_(files), options_(std::move(options)) {}

  void Add(const LaunchedWorker& worker);
  // The worker has ended: what it left unread comes with the next Poll, then it is forgotten. Empty
  // files are deleted then.
  void End(ProcessId process);
  // The file of that name is the output of a submitted command, and kept small until EndJob.
  void AddJob(const std::string& name) { jobs_.insert(name); }
  void EndJob(const std::string& name) { jobs_.erase(name); }
  // New lines of all workers, and rotation.
  std::vector<LogBatch> Poll();
  // Deletes what is too old or too much. Wall time, as files carry it.
  void RemoveOld(int64_t now_unix_s);
  bool empty() const { return workers_.empty() && jobs_.empty(); }

 private:
  struct Stream {
    std::string path;
    int64_t offset = 0;    // Read so far.
    std::string partial;   // Of a line that has no end yet.
    int64_t skipped = 0;   // Bytes left out since the last line that was handed on.
    int64_t left_out = 0;  // The same, since the last batch.
    bool rotated = false;
  };
  struct Worker {
    LaunchedWorker info;
    std::vector<Stream> streams;  // Output, errors.
    bool ended = false;
  };
  void PollStream(Stream& stream, bool ended, proto::LogLines& lines);
  void SplitLines(Stream& stream, std::string_view text, bool ended, proto::LogLines& lines) const;
  void Rotate(Stream& stream);
  bool IsToRotate(const std::string& name, int64_t bytes, int64_t most) const;

  LogFiles& files_;
  const LogTailerOptions options_;
  absl::btree_map<ProcessId, Worker> workers_;
  absl::btree_set<std::string> jobs_;  // Names of their files.
};

}  // namespace sheaf
