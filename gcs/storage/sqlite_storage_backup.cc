// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A copy of the database while it is in use. It is made through the connection that writes, as that
// one holds the only lock: some pages, then the commits that wait, then some pages more. SQLite
// itself repeats pages that a commit has changed meanwhile, so the copy is that of its last moment.
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "gcs/storage/sqlite_storage.h"

namespace sheaf {
namespace {

constexpr int kPagesAtOnce = 256;  // 1 MiB: commits wait for no more.

absl::Status Errno(const std::string& path, const char* doing) {
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error)));
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || fsync(directory.get()) != 0) return Errno(folder, "sync");
  return absl::OkStatus();
}

}  // namespace

// Under another name until it is whole.
struct SqliteStorage::Copy {
  ~Copy() {
    if (pages != nullptr) sqlite3_backup_finish(pages);
    if (database != nullptr) sqlite3_close(database);
    if (file.valid()) unlink(part.c_str());
  }
  std::string path, part;
  Done done;
  UniqueFd file;
  sqlite3* database = nullptr;
  sqlite3_backup* pages = nullptr;
};

void SqliteStorage::CopyDeleter::operator()(Copy* copy) const { delete copy; }

void SqliteStorage::Backup(std::string path, Done done) {
  writer_.Post([this, path = std::move(path), done = std::move(done)]() mutable {
    if (copy_ != nullptr) {
      return done(absl::FailedPreconditionError(
          absl::StrCat("another copy is being made just now: ", copy_->path)));
    }
    copy_.reset(new Copy);
    copy_->path = std::move(path);
    copy_->part = absl::StrCat(copy_->path, ".part");
    copy_->done = std::move(done);
    if (absl::Status begun = BeginCopy(); !begun.ok()) return EndCopy(std::move(begun));
    CopySome();
  });
}

absl::Status SqliteStorage::BeginCopy() {
  Copy& copy = *copy_;
  if (dead_) return absl::UnavailableError("the disk of the GCS has failed");
  if (access(copy.path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(copy.path, " exists; name a new file"));
  }
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  copy.file = UniqueFd(open(copy.part.c_str(), flags, 0600));
  if (!copy.file.valid()) return Errno(copy.part, "make");
  if (sqlite3_open_v2(copy.part.c_str(), &copy.database,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                      nullptr) != SQLITE_OK ||
      // What is left of a copy that failed is removed, and a whole one is synced at its end.
      sqlite3_exec(copy.database, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", nullptr,
                   nullptr, nullptr) != SQLITE_OK ||
      (copy.pages = sqlite3_backup_init(copy.database, "main", database_, "main")) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot write ", copy.part, ": ", sqlite3_errmsg(copy.database)));
  }
  return absl::OkStatus();
}

void SqliteStorage::CopySome() {
  const int code = dead_ ? SQLITE_IOERR : sqlite3_backup_step(copy_->pages, kPagesAtOnce);
  if (code == SQLITE_OK) return writer_.Post([this] { CopySome(); });
  if (code != SQLITE_DONE) {
    return EndCopy(absl::UnavailableError(
        absl::StrCat("cannot write ", copy_->part, ": ", sqlite3_errstr(code))));
  }
  EndCopy(FinishCopy());
}

absl::Status SqliteStorage::FinishCopy() {
  Copy& copy = *copy_;
  const int finished = sqlite3_backup_finish(std::exchange(copy.pages, nullptr));
  const int closed = sqlite3_close(std::exchange(copy.database, nullptr));
  if (finished != SQLITE_OK || closed != SQLITE_OK) {
    return absl::UnavailableError(
        absl::StrCat("cannot finish ", copy.part, ": ",
                     sqlite3_errstr(finished != SQLITE_OK ? finished : closed)));
  }
  if (fsync(copy.file.get()) != 0) return Errno(copy.part, "sync");
  if (link(copy.part.c_str(), copy.path.c_str()) != 0) return Errno(copy.path, "make");
  return SyncDirectoryOf(copy.path);
}

void SqliteStorage::EndCopy(absl::Status status) {
  const Done done = std::move(copy_->done);
  copy_.reset();
  done(std::move(status));
}

}  // namespace sheaf
