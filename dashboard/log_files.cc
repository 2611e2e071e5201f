// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/log_files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/unique_fd.h"

namespace sheaf::dashboard {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNames = 10'000;

// Ray's group of a file.
const char* GroupOf(std::string_view name) {
  if (name.starts_with("worker-")) return name.ends_with(".err") ? "worker_err" : "worker_out";
  if (name.starts_with("job-driver-") || name.starts_with("job-")) return "driver";
  if (name.starts_with("node.")) return "raylet";
  if (name.starts_with("gcs.")) return "gcs_server";
  if (name.starts_with("dashboard")) return "dashboard";
  return "internal";
}

struct OpenLog {
  UniqueFd fd;
  uint64_t bytes = 0;
};

// Follows no link: what workers put there may lead anywhere.
absl::StatusOr<OpenLog> Open(const std::string& directory, std::string_view name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("filename=", std::string(name.substr(0, 200)),
                     ": want the name of a file, without directories"));
  }
  const std::string path = absl::StrCat(directory, "/", std::string(name));
  OpenLog log;
  log.fd.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info{};
  if (!log.fd.valid() || fstat(log.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat("there is no log ", std::string(name)));
  }
  log.bytes = static_cast<uint64_t>(info.st_size);
  return log;
}

absl::StatusOr<std::string> ReadAt(const OpenLog& log, uint64_t from, uint64_t bytes) {
  std::string out(bytes, '\0');
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t n =
        pread(log.fd.get(), out.data() + got, out.size() - got, static_cast<off_t>(from + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "the log cannot be read");
    if (n == 0) break;  // It has become shorter meanwhile.
    got += static_cast<size_t>(n);
  }
  out.resize(got);
  return out;
}

// Keeps the last `lines` of `text`.
void KeepLines(std::string& text, int64_t lines) {
  if (lines == 0) return text.clear();
  size_t begin = text.ends_with('\n') ? text.size() - 1 : text.size();
  for (; lines > 0 && begin != std::string::npos; --lines) {
    begin = begin == 0 ? std::string::npos : text.rfind('\n', begin - 1);
  }
  if (begin != std::string::npos) text.erase(0, begin + 1);
}

}  // namespace

std::string LogGroupsJson(const std::string& directory, const std::string& glob) {
  std::map<std::string, std::vector<std::string>> groups;
  std::error_code error;
  size_t names = 0;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (fnmatch(glob.c_str(), name.c_str(), 0) != 0 || ++names > kMaxNames) continue;
    groups[GroupOf(name)].push_back(name);
  }
  JsonObject object;
  for (auto& [group, files] : groups) {
    std::sort(files.begin(), files.end());
    JsonArray array;
    for (const std::string& file : files) array.Add(JsonString(file));
    object.Add(group, array.Done());
  }
  return object.Done();
}

absl::StatusOr<LogPart> ReadLogEnd(const std::string& directory, std::string_view name,
                                   int64_t lines) {
  SHEAF_ASSIGN_OR_RETURN(const OpenLog log, Open(directory, name));
  const uint64_t from = log.bytes > kMaxLogBytes ? log.bytes - kMaxLogBytes : 0;
  LogPart part;
  SHEAF_ASSIGN_OR_RETURN(part.bytes, ReadAt(log, from, log.bytes - from));
  part.end = from + part.bytes.size();
  if (lines >= 0) {
    KeepLines(part.bytes, lines);
  } else if (from > 0) {
    part.bytes.insert(0, absl::StrCat("[the first ", from, " bytes of this log are left out]\n"));
  }
  return part;
}

absl::StatusOr<LogPart> ReadLogFrom(const std::string& directory, std::string_view name,
                                    uint64_t from, uint64_t most) {
  SHEAF_ASSIGN_OR_RETURN(const OpenLog log, Open(directory, name));
  LogPart part;
  const bool shorter = log.bytes < from;
  if (shorter) from = 0;
  SHEAF_ASSIGN_OR_RETURN(part.bytes, ReadAt(log, from, std::min(most, log.bytes - from)));
  part.end = from + part.bytes.size();
  if (shorter) part.bytes.insert(0, "[this log was begun anew]\n");
  return part;
}

std::string WithoutAnsiCodes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b' || i + 1 >= text.size() || text[i + 1] != '[') {
      out += text[i];
      continue;
    }
    i += 2;
    while (i < text.size() && (text[i] < 0x40 || text[i] > 0x7e)) ++i;  // To the final byte.
  }
  return out;
}

}  // namespace sheaf::dashboard
