// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"

namespace sheaf::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "session-";

absl::Status Failed(const std::string& what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", what));
}

// In /tmp another user may have made it first.
absl::Status CheckOurs(const std::string& directory) {
  struct stat about{};
  if (lstat(directory.c_str(), &about) != 0) return Failed(directory);
  if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory,
                     " is not a directory of this user alone (mode 0700): remove it, or set "
                     "SHEAF_DIR to another"));
  }
  return absl::OkStatus();
}

absl::Status MakeBase(const std::string& directory) {
  std::error_code error;
  const fs::path parent = fs::path(directory).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error)
    return absl::UnavailableError(
        absl::StrCat("cannot make ", parent.string(), ": ", error.message()));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Failed(directory);
  return CheckOurs(directory);
}

absl::Status WriteToken(const std::string& path, const std::string& token) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Failed(path);
  const std::string line = token + "\n";
  if (write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return Failed(path);
  return absl::OkStatus();
}

// Sessions whose node is dead and that nobody has written to for so long. One that starts right now
// is young.
void RemoveOld(const std::string& base, int64_t keep_hours) {
  std::vector<fs::path> old;
  std::error_code error;
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(keep_hours);
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) || !absl::StartsWith(entry->path().filename().string(), kPrefix))
      continue;
    if (fs::last_write_time(entry->path(), ignored) < before && !ignored)
      old.push_back(entry->path());
  }
  for (const fs::path& session : old) {
    if (UnixSocket::Connect((session / "raylet.sock").string(), kSecond).ok()) continue;
    fs::remove_all(session, error);
  }
}

std::string NewToken() {
  std::string token;
  for (int word = 0; word < 4; ++word)
    absl::StrAppend(&token, absl::Hex(EntropySeed(), absl::kZeroPad16));
  return token;
}

}  // namespace

absl::StatusOr<Session> CreateSession(const std::string& base_directory, int64_t keep_hours) {
  SHEAF_RETURN_IF_ERROR(MakeBase(base_directory));
  RemoveOld(base_directory, keep_hours);
  const std::string start = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone());
  Session session;
  session.directory = absl::StrCat(base_directory, "/", kPrefix, start, "-", getpid());
  session.socket = session.directory + "/raylet.sock";
  session.database = session.directory + "/gcs.db";
  session.logs = session.directory + "/logs";
  session.spill = session.directory + "/spill";
  session.token = NewToken();
  for (const std::string& directory : {session.directory, session.logs, session.spill}) {
    if (mkdir(directory.c_str(), 0700) != 0) return Failed(directory);
  }
  SHEAF_RETURN_IF_ERROR(WriteToken(session.directory + "/token", session.token));
  return session;
}

absl::Status PublishLatest(const Session& session) {
  const fs::path directory(session.directory);
  const std::string link = (directory.parent_path() / "latest").string();
  const std::string scratch = absl::StrCat(link, ".", getpid());
  unlink(scratch.c_str());
  if (symlink(directory.filename().c_str(), scratch.c_str()) != 0 ||
      rename(scratch.c_str(), link.c_str()) != 0) {
    return Failed(link);
  }
  return absl::OkStatus();
}

}  // namespace sheaf::cli
