// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/session_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

constexpr char kMaking[] = "making-";  // How a directory is named before it is a session.
constexpr char kLatest[] = "latest";
constexpr char kDatabaseName[] = "/gcs.db";

absl::Status Errno(const std::string& what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, what);
}

absl::Status PrepareBase(const std::string& base) {
  std::error_code error;
  const fs::path parent = fs::path(base).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (mkdir(base.c_str(), 0700) != 0 && errno != EEXIST) return Errno(base);
  struct stat info;
  // Not through a link: in /tmp anybody may have put one there before us.
  if (lstat(base.c_str(), &info) != 0) return Errno(base);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        base, " must be a directory of this user with mode 0700; name another one with SHEAF_DIR"));
  }
  if (KindOfFileSystem(base) == FileSystemKind::kNetwork) {
    return absl::FailedPreconditionError(
        absl::StrCat(base, " is on a network file system; name a local directory with SHEAF_DIR"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WriteToken(const std::string& path) {
  std::array<char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Errno("getrandom");
  const std::string token = absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() ||
      write(file.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size())) {
    return Errno(path);
  }
  return token;
}

// The lock of a living node's session cannot be had. Invalid then, or when there is none.
UniqueFd TakeLock(const std::string& session, int flags) {
  UniqueFd lock(open((session + "/lock").c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) lock.Reset();
  return lock;
}

std::string NameOf(int64_t start_time_unix_s) {
  const time_t start = static_cast<time_t>(start_time_unix_s);
  tm parts{};
  gmtime_r(&start, &parts);
  char text[32] = {};
  strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &parts);
  return absl::StrCat("session-", text, "-", getpid());
}

// systemd's ageing of temporary files leaves a locked directory, and all in it, alone.
UniqueFd LockAgainstAgeing(const std::string& base) {
  UniqueFd directory(open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) flock(directory.get(), LOCK_SH | LOCK_NB);  // Best effort.
  return directory;
}

bool IsThere(const std::string& path, int open_fd) {
  struct stat named;
  struct stat held;
  return stat(path.c_str(), &named) == 0 && fstat(open_fd, &held) == 0 &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

// When a node was ready there last; the directory's own time when none was.
int64_t LastStart(const std::string& session) {
  struct stat info;
  if (stat((session + "/node").c_str(), &info) != 0 && stat(session.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

void RemoveTransient(const std::string& session) {
  std::error_code ignored;
  fs::remove(fs::path(session) / kRayletSocketName, ignored);
  fs::remove(session + "/gcs.sock", ignored);
  fs::remove_all(session + "/spill", ignored);
  fs::remove_all(session + "/programs", ignored);
  fs::remove(session + "/token", ignored);
}

// What processes left that were killed in the middle of Make, long ago: it takes milliseconds.
void RemoveUnmade(const std::string& base) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (absl::StartsWith(entry->path().filename().string(), kMaking) &&
        entry->last_write_time(ignored) + std::chrono::hours(1) < now && !ignored) {
      fs::remove_all(entry->path(), ignored);
    }
  }
}

}  // namespace

std::string DirectoryOf(const std::string& address, const std::string& base) {
  if (address == kLatest || address == "auto") return absl::StrCat(base, "/", kLatest);
  std::error_code ignored;
  return fs::is_socket(address, ignored) ? fs::path(address).parent_path().string() : address;
}

bool NamesHead(const std::string& address) {
  const size_t colon = address.rfind(':');
  return colon != std::string::npos && colon + 1 < address.size() &&
         address.find('/') == std::string::npos &&
         address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
}

std::string SocketOf(const std::string& address, const std::string& base) {
  return fs::path(DirectoryOf(address, base)) / kRayletSocketName;
}

absl::StatusOr<std::unique_ptr<SessionDirectory>> SessionDirectory::Make(const std::string& base,
                                                                         int64_t start_time_unix_s,
                                                                         bool keep) {
  // It gets its name once its lock is held. Another node that starts, and removes what dead ones
  // have left, would else take it for one of those.
  std::string making;
  absl::Status prepared;
  for (int i = 0; i < 100; ++i) {
    prepared = PrepareBase(base);
    making = absl::StrCat(base, "/", kMaking, "XXXXXX");
    if (prepared.ok() && mkdtemp(making.data()) == nullptr) prepared = Errno(making);
    if (!absl::IsNotFound(prepared)) break;  // The last node in it takes the base along: again.
  }
  if (!prepared.ok()) return prepared;
  UniqueFd lock = TakeLock(making, O_CREAT);
  if (!lock.valid()) return Errno(making + "/lock");
  const std::string first = absl::StrCat(base, "/", NameOf(start_time_unix_s));
  std::string path = first;
  // A process of another container may have the same number.
  for (int more = 2;
       renameat2(AT_FDCWD, making.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0; ++more) {
    if (errno != EEXIST || more > 100) return Errno(path);
    path = absl::StrCat(first, "-", more);
  }
  std::unique_ptr<SessionDirectory> result(new SessionDirectory(base, path, keep));
  result->base_lock_ = LockAgainstAgeing(base);
  result->lock_ = std::move(lock);
  if (keep) {
    const UniqueFd mark(open((path + "/keep").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!mark.valid()) return Errno(path + "/keep");
  }
  for (const std::string& directory : {result->log_directory(), result->spill_directory()}) {
    if (mkdir(directory.c_str(), 0700) != 0) return Errno(directory);
  }
  SHEAF_ASSIGN_OR_RETURN(result->token_, WriteToken(path + "/token"));
  return result;
}

absl::StatusOr<std::unique_ptr<SessionDirectory>> SessionDirectory::Resume(
    const std::string& path) {
  std::error_code error;
  const fs::path session = fs::canonical(path, error);
  if (error || !fs::exists(session / "keep", error)) {
    return absl::NotFoundError(
        absl::StrCat("'", path, "' is no session of a node that was started with `sheaf start`"));
  }
  SHEAF_RETURN_IF_ERROR(PrepareBase(session.parent_path().string()));
  UniqueFd lock = TakeLock(session.string(), O_CREAT);
  // The kernel lets go of what a killed node held only with the last of its threads.
  for (int i = 0; i < 100 && !lock.valid(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    lock = TakeLock(session.string(), O_CREAT);
  }
  if (!lock.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a node runs in ", path, "; end it first with: sheaf stop --address ", path));
  }
  std::unique_ptr<SessionDirectory> result(
      new SessionDirectory(session.parent_path().string(), session.string(), /*keep=*/true));
  result->base_lock_ = LockAgainstAgeing(result->base_);
  result->lock_ = std::move(lock);
  RemoveTransient(result->path());
  for (const std::string& directory : {result->log_directory(), result->spill_directory()}) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Errno(directory);
  }
  SHEAF_ASSIGN_OR_RETURN(result->token_, WriteToken(result->path() + "/token"));
  return result;
}

SessionDirectory::~SessionDirectory() {
  std::error_code ignored;
  const std::string link = absl::StrCat(base_, "/", kLatest);
  if (fs::read_symlink(link, ignored) == name()) fs::remove(link, ignored);
  if (keep_) {
    RemoveTransient(path_);
  } else {
    fs::remove_all(path_, ignored);
    fs::remove(base_, ignored);  // Fails while others are in it.
  }
}

uint32_t SessionDirectory::ReadNode() const {
  std::ifstream file(path_ + "/node");
  uint32_t number = 0;
  return file >> number ? number : 0;
}

void SessionDirectory::WriteNode(uint32_t number) const {
  const std::string text = std::to_string(number);
  const UniqueFd file(
      open((path_ + "/node").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.valid()) (void)!write(file.get(), text.data(), text.size());
}

void SessionDirectory::PublishLatest() const {
  const std::string fresh = absl::StrCat(base_, "/.", kLatest, "-", getpid());
  unlink(fresh.c_str());
  if (symlink(name().c_str(), fresh.c_str()) == 0 &&
      std::rename(fresh.c_str(), absl::StrCat(base_, "/", kLatest).c_str()) != 0) {
    unlink(fresh.c_str());
  }
}

absl::Status SessionDirectory::CheckThere() const {
  if (IsThere(path_ + "/lock", lock_.get())) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_, ", the directory of this node, was removed or replaced while the node runs"));
}

std::vector<SessionInfo> SessionDirectory::List(const std::string& base) {
  std::vector<SessionInfo> found;
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (!absl::StartsWith(entry->path().filename().string(), "session-") ||
        entry->is_symlink(ignored)) {
      continue;
    }
    SessionInfo info;
    info.path = entry->path().string();
    info.runs = fs::exists(info.path + "/lock", ignored) && !TakeLock(info.path, 0).valid();
    info.kept = fs::exists(info.path + "/keep", ignored);
    info.has_database = fs::exists(info.path + kDatabaseName, ignored);
    info.last_start_unix_ns = LastStart(info.path);
    found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(), [](const SessionInfo& a, const SessionInfo& b) {
    return std::tie(b.last_start_unix_ns, b.path) < std::tie(a.last_start_unix_ns, a.path);
  });
  return found;
}

namespace {

// Whoever looks whether a node runs holds its lock for a moment, and so does a child of a node that
// was killed, until it executes its own program.
bool RunsForLong(const std::string& session) {
  constexpr int kLooks = 30;
  for (int look = 0; look < kLooks; ++look) {
    if (TakeLock(session, 0).valid()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> SessionDirectory::FindLatest(const std::string& base, bool head) {
  for (const SessionInfo& session : List(base)) {
    if (!session.kept || session.has_database != head) continue;
    if (!session.runs || (head && !RunsForLong(session.path))) return session.path;
    if (!head) continue;  // Of several nodes on one machine each goes on with its own.
    return absl::FailedPreconditionError(
        absl::StrCat("the latest head, ", session.path,
                     ", runs; end it first with: sheaf stop "
                     "--address ",
                     session.path, " (or name another one: sheaf sessions lists them)"));
  }
  return std::string();
}

absl::Status SessionDirectory::Remove(const std::string& path) {
  std::error_code error;
  const fs::path session = fs::canonical(path, error);
  if (error || !absl::StartsWith(session.filename().string(), "session-") ||
      !fs::exists(session / "lock", error)) {
    return absl::NotFoundError(absl::StrCat("'", path, "' is no session of a node"));
  }
  const UniqueFd lock = TakeLock(session.string(), 0);
  if (!lock.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a node runs in ", path, "; end it first with: sheaf stop --address ", path));
  }
  fs::remove_all(session, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return absl::OkStatus();
}

int SessionDirectory::RemoveDead(const std::string& base, int keep_newest) {
  int changed = 0;
  RemoveUnmade(base);
  int without_state = 0;
  for (const SessionInfo& session : List(base)) {  // The newest first.
    const UniqueFd lock = TakeLock(session.path, 0);
    if (!lock.valid()) continue;
    std::error_code ignored;
    // What a head has acknowledged is nobody's to remove but its owner's.
    const bool stays = session.has_database || (session.kept && without_state++ < keep_newest);
    if (stays) {
      if (fs::exists(fs::path(session.path) / kRayletSocketName, ignored)) ++changed;
      RemoveTransient(session.path);
    } else {
      Log(LogLevel::kInfo, "removing ", session.path, ": its node has ended, and was no head");
      fs::remove_all(session.path, ignored);
      ++changed;
    }
  }
  return changed;
}

}  // namespace sheaf
