// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/log_tailer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "raylet/host/last_lines.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

int64_t SizeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
}

// "worker-1.7.out.1"
bool IsBackup(const std::string& path) {
  return !absl::EndsWith(path, ".out") && !absl::EndsWith(path, ".err");
}

std::string ReadRange(const std::string& path, int64_t offset, int64_t bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  std::string text(static_cast<size_t>(bytes), '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), offset);
  text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

}  // namespace

void LogTailer::Add(const LaunchedWorker& worker) {
  Worker& entry = workers_[worker.process];
  entry.info = worker;
  entry.streams.resize(2);
  entry.streams[0].path = worker.stdout_path;
  entry.streams[1].path = worker.stderr_path;
}

void LogTailer::End(ProcessId process) {
  if (const auto found = workers_.find(process); found != workers_.end())
    found->second.ended = true;
}

std::vector<LogBatch> LogTailer::Poll() {
  std::vector<LogBatch> batches;
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    for (const bool errors : {false, true}) {
      Stream& stream = worker.streams[errors];
      LogBatch batch;
      PollStream(stream, worker.ended, batch.lines);
      if (batch.lines.lines_size() == 0) continue;
      batch.driver = worker.info.driver;
      batch.lines.set_process(worker.info.process.packed());
      batch.lines.set_os_pid(worker.info.os_pid);
      batch.lines.set_error_stream(errors);
      batch.bytes_left_out = static_cast<uint64_t>(std::exchange(stream.left_out, 0));
      batches.push_back(std::move(batch));
    }
    if (!worker.ended) {
      ++it;
      continue;
    }
    for (const Stream& stream : worker.streams) {
      if (stream.offset == 0 && !stream.rotated) unlink(stream.path.c_str());
    }
    it = workers_.erase(it);
  }
  for (const std::string& job : jobs_) {
    if (IsToRotate(job, SizeOf(files_.PathOf(job)), options_.max_job_bytes))
      files_.Rotate(job, options_.job_backups)
          .status()
          .IgnoreError();  // The next Poll tries again.
  }
  return batches;
}

void LogTailer::PollStream(Stream& stream, bool ended, proto::LogLines& lines) {
  const int64_t size = SizeOf(stream.path);
  if (size < stream.offset) stream.offset = 0;  // Somebody else emptied it.
  if (size > stream.offset) {
    int64_t from = stream.offset;
    if (size - from > options_.bytes_per_poll) {
      // Too fast to show: go on near its end.
      stream.skipped += size - options_.bytes_per_poll - from;
      stream.left_out += size - options_.bytes_per_poll - from;
      from = size - options_.bytes_per_poll;
      stream.partial.clear();
    }
    const std::string text = ReadRange(stream.path, from, size - from);
    stream.offset = from + static_cast<int64_t>(text.size());
    SplitLines(stream, text, ended, lines);
  } else if (ended) {
    SplitLines(stream, "", ended, lines);
  }
  if (IsToRotate(fs::path(stream.path).filename(), size, options_.max_file_bytes)) Rotate(stream);
}

void LogTailer::SplitLines(Stream& stream, std::string_view text, bool ended,
                           proto::LogLines& lines) const {
  if (stream.skipped > 0 && !text.empty()) {
    // The first line after a gap is most likely the end of one.
    const size_t line_end = text.find('\n');
    const size_t cut = line_end == std::string_view::npos ? text.size() : line_end + 1;
    stream.skipped += static_cast<int64_t>(cut);
    stream.left_out += static_cast<int64_t>(cut);
    text.remove_prefix(cut);
    if (text.empty() && !ended) return;
    lines.add_lines(
        absl::StrCat("... ", stream.skipped, " bytes left out; they are in ", stream.path));
    stream.skipped = 0;
  }
  std::string& line = stream.partial;
  for (const char byte : text) {
    if (byte != '\n') line.push_back(byte);
    if (byte == '\n' || line.size() >= options_.max_line_bytes) {
      lines.add_lines(ToValidUtf8(line));
      line.clear();
    }
  }
  if (ended && !line.empty()) {
    lines.add_lines(ToValidUtf8(line));
    line.clear();
  }
}

bool LogTailer::IsToRotate(const std::string& name, int64_t bytes, int64_t most) const {
  if (bytes <= most) return false;
  return bytes > LogTailerOptions::kPatience * most || options_.is_unread == nullptr ||
         !options_.is_unread(name);
}

void LogTailer::Rotate(Stream& stream) {
  // What came since has yet to be read, and stays.
  const absl::StatusOr<uint64_t> moved =
      files_.Rotate(fs::path(stream.path).filename(), 1, static_cast<uint64_t>(stream.offset));
  if (!moved.ok()) return;  // The next Poll tries again.
  stream.rotated = true;
  stream.offset -= static_cast<int64_t>(*moved);
  if (stream.offset >= 0) return;
  stream.partial.clear();           // Its end is not known.
  stream.skipped -= stream.offset;  // The whole file had to go.
  stream.left_out -= stream.offset;
  stream.offset = 0;
}

void LogTailer::RemoveOld(int64_t now_unix_s) {
  struct File {
    int64_t modified;
    int64_t bytes;
    std::string path;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator entry(files_.directory(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    struct stat info;
    if (!absl::StartsWith(entry->path().filename().string(), "worker-") ||
        stat(path.c_str(), &info) != 0)
      continue;
    total += info.st_size;
    const bool in_use = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
      return worker.second.info.stdout_path == path || worker.second.info.stderr_path == path;
    });
    if (!in_use) files.push_back({info.st_mtime, info.st_size, path});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.modified < b.modified; });
  for (const File& file : files) {
    const bool old = now_unix_s - file.modified >= options_.keep / kSecond;
    if (!old && total <= options_.max_total_bytes) break;
    if (unlink(file.path.c_str()) == 0) total -= file.bytes;
    if (!IsBackup(file.path)) files_.Remove(fs::path(file.path).filename());
  }
}

}  // namespace sheaf
