// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/train_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/whole_file.h"

namespace sheaf::inline v1::train {
namespace internal {
namespace fs = std::filesystem;
namespace {

constexpr char kHistory[] = "metrics.jsonl";
constexpr char kCheckpoint[] = "checkpoint_";
constexpr char kMarker[] = ".sheaf_checkpoint.json";  // In each complete checkpoint: its last row.

[[noreturn]] void ThrowErrno(const char* what, const fs::path& path, int error) {
  throw SystemError(absl::StrCat(what, " ", path.string(), ": ", std::strerror(error)));
}

void Sync(int fd, const fs::path& path) {
  if (fsync(fd) != 0) ThrowErrno("cannot put on disk", path, errno);
}

void SyncPath(const fs::path& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) ThrowErrno("cannot open", path, errno);
  Sync(fd.get(), path);
}

void WriteAll(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) ThrowErrno("cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void WriteFile(const fs::path& path, std::string_view bytes) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) ThrowErrno("cannot write", path, errno);
  WriteAll(fd.get(), bytes, path);
  Sync(fd.get(), path);
}

void Rename(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) ThrowErrno("cannot rename", from, errno);
  SyncPath(to.parent_path());
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

}  // namespace

std::string IncompleteFolder(const std::string& run, uint64_t number, uint64_t epoch) {
  return absl::StrFormat("%s/%s%06d-%d", run, kIncomplete, number, epoch);
}

void CheckNames(const Metrics& metrics) {
  for (const auto& [name, value] : metrics) {
    const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
      return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
    });
    if (!plain || name.empty() || name == "step" || name == "seconds") {
      throw InvalidArgumentError("Report: the metric '" + name +
                                 "': want a name without quotes, backslashes and control "
                                 "characters, and not 'step' or 'seconds'");
    }
  }
}

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) ThrowErrno("cannot make the folder", folder, error.value());
}

void SyncFiles(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file(error) || at->is_directory(error)) SyncPath(at->path());
  }
  if (error) ThrowErrno("cannot read the folder", folder, error.value());
  SyncPath(folder);
}

std::string LineOf(const Row& row) {
  std::string line = absl::StrCat("{\"step\":", row.step, ",\"seconds\":", Number(row.seconds));
  for (const auto& [name, value] : row.metrics) {
    absl::StrAppend(&line, ",\"", name, "\":", Number(value));
  }
  return line + "}";
}

std::optional<Row> RowOf(const std::string& line) {
  std::string_view rest = line;
  if (!rest.starts_with('{') || !rest.ends_with('}')) return std::nullopt;
  Metrics all;
  rest.remove_suffix(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);  // The brace, or a comma.
    const size_t colon = rest.find("\":");
    if (!rest.starts_with('"') || colon == std::string_view::npos) return std::nullopt;
    const std::string name(rest.substr(1, colon - 1));
    rest.remove_prefix(colon + 2);
    const std::string_view number = rest.substr(0, rest.find(','));
    double value = std::numeric_limits<double>::quiet_NaN();
    if (number != "null" && !absl::SimpleAtod({number.data(), number.size()}, &value)) {
      return std::nullopt;
    }
    all[name] = value;
    rest.remove_prefix(number.size());
  }
  Row row;
  row.step = static_cast<uint64_t>(all["step"]);
  row.seconds = all["seconds"];
  all.erase("step");
  all.erase("seconds");
  row.metrics = std::move(all);
  return row;
}

RunFiles::RunFiles(fs::path folder, int keep) : folder_(std::move(folder)), keep_(keep) {}

void RunFiles::Open() {
  if (folder_.empty()) return;
  MakeFolder(folder_);
  RemoveIncomplete();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (!entry.path().filename().string().starts_with(kCheckpoint)) continue;
    std::ifstream marker(entry.path() / kMarker);
    std::string line;
    std::getline(marker, line);
    if (const std::optional<Row> row = RowOf(line)) kept_.push_back({entry.path(), row->step});
  }
  if (error) ThrowErrno("cannot read the folder", folder_, error.value());
  std::sort(kept_.begin(), kept_.end(),
            [](const Kept& a, const Kept& b) { return a.steps < b.steps; });
  std::ifstream lines(folder_ / kHistory);
  for (std::string line; std::getline(lines, line);) {
    std::optional<Row> row = RowOf(line);
    if (!row.has_value() || row->step != history_.size() + 1) break;
    history_.push_back(*std::move(row));
  }
  if (!kept_.empty() && history_.size() < kept_.back().steps) {
    throw SystemError(absl::StrCat((folder_ / kHistory).string(), " has ", history_.size(),
                                   " steps, but ", kept_.back().folder.string(), " is of step ",
                                   kept_.back().steps, ": take another folder"));
  }
  Rollback();
}

void RunFiles::Record(Row row, const std::string& incomplete) {
  const std::string line = LineOf(row);
  const uint64_t steps = row.step;
  history_.push_back(std::move(row));
  if (folder_.empty()) return;
  WriteAll(log_.get(), line + "\n", folder_ / kHistory);
  if (incomplete.empty()) return;
  Sync(log_.get(), folder_ / kHistory);  // Before the checkpoint that stands on it.
  WriteFile(fs::path(incomplete) / kMarker, line + "\n");
  SyncPath(incomplete);
  const fs::path complete = folder_ / absl::StrFormat("%s%06d", kCheckpoint, steps);
  Rename(incomplete, complete);
  kept_.push_back({complete, steps});
  while (keep_ > 0 && kept_.size() > static_cast<size_t>(keep_)) {
    Remove(kept_.front().folder);
    kept_.erase(kept_.begin());
  }
}

void RunFiles::Rollback() {
  history_.resize(kept_.empty() ? 0 : kept_.back().steps);
  if (folder_.empty()) return;
  RemoveIncomplete();
  WriteHistory();
}

std::optional<Checkpoint> RunFiles::newest() const {
  if (kept_.empty()) return std::nullopt;
  return Checkpoint(kept_.back().folder);
}

void RunFiles::RemoveIncomplete() {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(kIncomplete)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, error);
  if (error) ThrowErrno("cannot clear the folder", folder_, error.value());
}

// So that nobody ever sees a part of it under its name.
void RunFiles::Remove(const fs::path& folder) {
  const fs::path going = folder_ / (kIncomplete + folder.filename().string());
  Rename(folder, going);
  std::error_code error;
  fs::remove_all(going, error);
  if (error) ThrowErrno("cannot remove", going, error.value());
}

void RunFiles::WriteHistory() {
  const fs::path path = folder_ / kHistory;
  const fs::path fresh = folder_ / absl::StrCat(kIncomplete, kHistory);
  std::string text;
  for (const Row& row : history_) text += LineOf(row) + "\n";
  WriteFile(fresh, text);
  Rename(fresh, path);
  log_ = UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (log_.get() < 0) ThrowErrno("cannot write", path, errno);
}

}  // namespace internal

void Checkpoint::WriteBytes(const std::string& file, const std::string& bytes) {
  internal::WriteFile(folder_ / file, bytes);
}

std::string Checkpoint::ReadBytes(const std::string& file) const {
  std::optional<std::string> bytes = WholeFile(folder_ / file);
  if (!bytes) internal::ThrowErrno("cannot read", folder_ / file, errno);
  return *std::move(bytes);
}

}  // namespace sheaf::inline v1::train
