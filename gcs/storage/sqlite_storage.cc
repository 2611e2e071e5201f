// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/storage/sqlite_storage.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "gcs/storage/wal_check.h"

namespace sheaf {
namespace {

constexpr int kApplicationId = 0x53484541;  // "SHEA", in the header of the file.
constexpr int kSchemaVersion = 1;
constexpr int kCheckpointPages = 1000;   // 4 MB of log.
constexpr size_t kGroupBytes = 8 << 20;  // Of one transaction, unless a single batch is larger.
constexpr size_t kChecksumBytes = 4;
constexpr int64_t kReserveStep = 64 << 10;  // Given back at a time: others fill the disk too.

uint32_t RowChecksum(int table, std::string_view key, std::string_view value) {
  const char head = static_cast<char>(table);
  const uint32_t key_size = static_cast<uint32_t>(key.size());
  uint32_t crc = Crc32c({&head, 1});
  crc = Crc32c({reinterpret_cast<const char*>(&key_size), sizeof key_size}, crc);
  return Crc32c(value, Crc32c(key, crc));
}

std::string WithChecksum(int table, std::string_view key, std::string_view value) {
  const uint32_t crc = RowChecksum(table, key, value);
  std::string row;
  row.reserve(value.size() + kChecksumBytes);
  row.append(value);
  row.append(reinterpret_cast<const char*>(&crc), kChecksumBytes);
  return row;
}

// WAL needs the file locks and the fsync of a local disk.
absl::Status CheckFileSystem(const std::string& path) {
  if (KindOfFileSystem(path) != FileSystemKind::kNetwork) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": on a network file system; the database of the GCS needs a local one"));
}

// Device and inode; zeros if there is none.
std::pair<uint64_t, uint64_t> FileAt(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

size_t SizeOf(const WriteBatch& batch) {
  size_t size = 0;
  for (const Write& write : batch)
    size += write.key.size() + (write.value ? write.value->size() : 0);
  return size;
}

}  // namespace

namespace {

// Keeps a connection for as long as the process lives, which ends soon after.
void Abandon(sqlite3* database) {
  static Mutex mutex;
  static auto* const abandoned ABSL_PT_GUARDED_BY(mutex) = new std::vector<sqlite3*>;
  const MutexLock lock(mutex);
  abandoned->push_back(database);
}

}  // namespace

SqliteStorage::SqliteStorage(SqliteStorageOptions options, Executor& completions)
    : options_(std::move(options)),
      completions_(completions),
      ballast_(options_.path + "-ballast", options_.ballast_bytes),
      reserve_(options_.path + "-reserve", options_.reserve_bytes),
      writer_("gcs-storage") {}

SqliteStorage::~SqliteStorage() {
  writer_.Stop();
  copy_.reset();
  // After a fault SQLite's clean-up would checkpoint pages that may be wrong, so the files stay as
  // they are.
  if (dead_) Abandon(database_);
  if (dead_ || database_ == nullptr) return;
  for (sqlite3_stmt* statement : {put_, erase_, begin_, commit_, rollback_})
    sqlite3_finalize(statement);
  sqlite3_close(database_);
}

absl::StatusOr<std::unique_ptr<SqliteStorage>> SqliteStorage::Open(SqliteStorageOptions options,
                                                                   Executor& completions) {
  std::unique_ptr<SqliteStorage> storage(new SqliteStorage(std::move(options), completions));
  SHEAF_RETURN_IF_ERROR(storage->OpenDatabase());
  SHEAF_RETURN_IF_ERROR(storage->CheckDatabase());
  storage->ballast_.Take();
  storage->reserve_.Take();
  return storage;
}

absl::Status SqliteStorage::OpenDatabase() {
  const std::string& path = options_.path;
  {
    // Made here, as SQLite would make it readable by all.
    const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid())
      return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid() || fsync(directory.get()) != 0) {
      return absl::UnavailableError(absl::StrCat(folder, ": cannot sync: ", std::strerror(errno)));
    }
  }
  database_file_ = FileAt(path);
  SHEAF_RETURN_IF_ERROR(CheckFileSystem(path));
  SHEAF_RETURN_IF_ERROR(CheckWriteAheadLog(path + "-wal"));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
  const char* vfs = options_.vfs.empty() ? nullptr : options_.vfs.c_str();
  const int code = sqlite3_open_v2(path.c_str(), &database_, flags, vfs);
  if (code != SQLITE_OK) {
    const absl::Status failure = Failure(code, "open");
    sqlite3_close(std::exchange(database_, nullptr));
    return failure;
  }
  sqlite3_extended_result_codes(database_, 1);
  // Exclusive: no second process writes, and no -shm file is needed. FULL: each commit is an fsync
  // of the log. Checkpoints are ours: SQLite's automatic ones hide a failed fsync.
  return Execute(
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
      "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=16777216; PRAGMA cache_size=-2000;"
      "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON");
}

absl::Status SqliteStorage::CheckDatabase() {
  SHEAF_ASSIGN_OR_RETURN(const std::string mode, QueryText("PRAGMA journal_mode"));
  if (mode != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.path, ": cannot use WAL, journal mode is ", mode));
  }
  SHEAF_ASSIGN_OR_RETURN(const std::string tables, QueryText("SELECT count(*) FROM sqlite_schema"));
  SHEAF_ASSIGN_OR_RETURN(const std::string application, QueryText("PRAGMA application_id"));
  SHEAF_ASSIGN_OR_RETURN(const std::string version, QueryText("PRAGMA user_version"));
  if (tables == "0" && application == "0") {
    SHEAF_RETURN_IF_ERROR(Execute(
        absl::StrCat(
            "BEGIN IMMEDIATE;"
            "CREATE TABLE rows(tab INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,"
            " PRIMARY KEY(tab, key)) WITHOUT ROWID;"
            "PRAGMA application_id=",
            kApplicationId, ";PRAGMA user_version=", kSchemaVersion, ";COMMIT")
            .c_str()));
  } else if (application != absl::StrCat(kApplicationId)) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.path, ": not a database of Sheaf's"));
  } else if (version != absl::StrCat(kSchemaVersion)) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.path, ": has schema version ", version, ", this program reads ", kSchemaVersion));
  }
  SHEAF_ASSIGN_OR_RETURN(const std::string verdict, QueryText("PRAGMA integrity_check(1)"));
  if (verdict != "ok")
    return absl::DataLossError(absl::StrCat(options_.path, ": damaged: ", verdict));
  SHEAF_RETURN_IF_ERROR(
      Prepare("INSERT INTO rows VALUES(?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = ?3", &put_));
  SHEAF_RETURN_IF_ERROR(Prepare("DELETE FROM rows WHERE tab = ?1 AND key = ?2", &erase_));
  SHEAF_RETURN_IF_ERROR(Prepare("BEGIN IMMEDIATE", &begin_));
  SHEAF_RETURN_IF_ERROR(Prepare("COMMIT", &commit_));
  SHEAF_RETURN_IF_ERROR(Prepare("ROLLBACK", &rollback_));
  sqlite3_wal_hook(
      database_,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<SqliteStorage*>(self)->log_pages_ = pages;
        return SQLITE_OK;
      },
      this);
  return absl::OkStatus();
}

absl::Status SqliteStorage::LoadAll(const Visitor& visit) {
  sqlite3_stmt* select = nullptr;
  SHEAF_RETURN_IF_ERROR(Prepare("SELECT tab, key, value FROM rows ORDER BY tab, key", &select));
  absl::Status status;
  int code;
  while (status.ok() && (code = sqlite3_step(select)) == SQLITE_ROW) {
    const auto blob = [&](int column) {
      const void* data = sqlite3_column_blob(select, column);
      const auto size = static_cast<size_t>(sqlite3_column_bytes(select, column));
      return size == 0 ? std::string_view()
                       : std::string_view(static_cast<const char*>(data), size);
    };
    const int table = sqlite3_column_int(select, 0);
    const std::string_view key = blob(1);
    std::string_view value = blob(2);
    uint32_t crc = 0;
    if (value.size() >= kChecksumBytes) {
      std::memcpy(&crc, value.data() + value.size() - kChecksumBytes, kChecksumBytes);
      value.remove_suffix(kChecksumBytes);
    }
    if (crc != RowChecksum(table, key, value)) {
      const absl::string_view name(key.data(), std::min<size_t>(key.size(), 64));
      status = absl::DataLossError(absl::StrCat(options_.path, ": damaged: wrong checksum of row '",
                                                absl::CHexEscape(name), "' in table ", table));
    } else {
      visit(static_cast<Table>(table), key, value);
    }
  }
  if (status.ok() && code != SQLITE_DONE) status = Failure(code, "read");
  sqlite3_finalize(select);
  return status;
}

void SqliteStorage::Commit(WriteBatch batch, Done done) {
  Queue({std::move(batch), std::move(done), /*vital=*/false, {}});
}

void SqliteStorage::CommitVital(WriteBatch batch, Done done) {
  Queue({std::move(batch), std::move(done), /*vital=*/true, {}});
}

void SqliteStorage::Queue(Pending pending) {
  bool first;
  {
    const MutexLock lock(mutex_);
    first = queue_.empty();
    queue_.push_back(std::move(pending));
  }
  if (first) writer_.Post([this] { CommitQueued(); });
}

void SqliteStorage::Flush() {
  std::promise<void> written;
  writer_.Post([&written] { written.set_value(); });
  written.get_future().get();
}

void SqliteStorage::CommitQueued() {
  std::vector<Pending> queued;
  {
    const MutexLock lock(mutex_);
    queued.swap(queue_);
  }
  std::vector<Pending> group;
  size_t bytes = 0;
  for (Pending& pending : queued) {
    bytes += SizeOf(pending.batch);
    group.push_back(std::move(pending));
    if (bytes < kGroupBytes) continue;
    CommitGroup(std::exchange(group, {}));
    bytes = 0;
  }
  if (!group.empty()) CommitGroup(std::move(group));
  if (!dead_ && log_pages_ >= kCheckpointPages) Checkpoint();
}

void SqliteStorage::CommitGroup(std::vector<Pending> group) {
  if (dead_) return;
  int code = SQLITE_FULL;
  if (!read_only() || TryResume()) {
    code = WriteTransaction(group);
    // The ballast is for this: finish what was begun, then take no more.
    if (IsFull(code)) {
      read_only_ = true;
      if (ballast_.Release()) code = WriteTransaction(group);
    }
  }
  if (dead_) return;  // TryResume found a fault.
  if (IsFull(code)) {
    const absl::Status full = absl::ResourceExhaustedError(
        absl::StrCat(options_.path, ": the disk is full; free some space: with ",
                     (2 * options_.ballast_bytes) >> 20, " MiB free it goes on"));
    const bool none_vital = std::none_of(group.begin(), group.end(),
                                         [](const Pending& pending) { return pending.vital; });
    code = none_vital ? SQLITE_OK : WriteVital(group);
    for (Pending& pending : group) {
      if (!pending.vital || IsFull(code)) pending.status = full;
    }
    if (IsFull(code) || none_vital) return Complete(std::move(group));
  }
  if (code != SQLITE_OK) return Fatal(Failure(code, "commit"));
  if (absl::Status named = CheckNamed(); !named.ok()) return Fatal(std::move(named));
  Complete(std::move(group));
}

void SqliteStorage::Complete(std::vector<Pending> group) {
  completions_.Post([group = std::make_shared<std::vector<Pending>>(std::move(group))] {
    for (Pending& pending : *group) pending.done(pending.status);
  });
}

absl::Status SqliteStorage::CheckNamed() {
  const std::pair<uint64_t, uint64_t> log = FileAt(options_.path + "-wal");
  if (log_file_ == std::pair<uint64_t, uint64_t>()) log_file_ = log;
  if (log.second != 0 && log == log_file_ && FileAt(options_.path) == database_file_) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      options_.path, ", the state of the cluster, was removed or replaced while it was in use"));
}

// The disk is full: the vital ones of `group`, as long as the reserve lasts.
int SqliteStorage::WriteVital(const std::vector<Pending>& group) {
  int code = WriteTransaction(group, /*vital_only=*/true);
  while (IsFull(code) && reserve_.ReleaseSome(kReserveStep)) {
    code = WriteTransaction(group, /*vital_only=*/true);
  }
  return code;
}

int SqliteStorage::WriteTransaction(const std::vector<Pending>& group, bool vital_only) {
  const auto run = [](sqlite3_stmt* statement) {
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
  };
  SHEAF_FAILPOINT("gcs.before_commit");
  const Nanos begin = MonotonicNow();
  int code = run(begin_);
  if (code != SQLITE_OK) return code;
  for (auto pending = group.begin(); pending != group.end() && code == SQLITE_OK; ++pending) {
    if (vital_only && !pending->vital) continue;
    for (auto write = pending->batch.begin(); write != pending->batch.end() && code == SQLITE_OK;
         ++write) {
      code = WriteRow(*write);
    }
  }
  if (code == SQLITE_OK) code = run(commit_);
  if (code == SQLITE_OK) {
    ++transactions_;
    if (options_.on_commit) options_.on_commit(MonotonicNow() - begin);
    SHEAF_FAILPOINT("gcs.after_commit");
    return SQLITE_OK;
  }
  // A full disk or an I/O error may have rolled it back already.
  if (sqlite3_get_autocommit(database_) == 0) {
    const int rolled_back = run(rollback_);
    if (rolled_back != SQLITE_OK) return rolled_back;
  }
  return code;
}

int SqliteStorage::WriteRow(const Write& write) {
  const int table = static_cast<int>(write.table);
  sqlite3_stmt* statement = write.value ? put_ : erase_;
  std::string row;
  sqlite3_bind_int(statement, 1, table);
  sqlite3_bind_blob64(statement, 2, write.key.data(), write.key.size(), SQLITE_STATIC);
  if (write.value) {
    row = WithChecksum(table, write.key, *write.value);
    sqlite3_bind_blob64(statement, 3, row.data(), row.size(), SQLITE_STATIC);
  }
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

bool SqliteStorage::IsFull(int code) const {
  return code == SQLITE_FULL ||
         (code == SQLITE_IOERR_WRITE &&
          (sqlite3_system_errno(database_) == EDQUOT || sqlite3_system_errno(database_) == ENOSPC));
}

bool SqliteStorage::TryResume() {
  if (!ballast_.Take()) return false;
  reserve_.Take();  // Without it the disk is as useful as before there was one.
  read_only_ = false;
  Checkpoint();  // Frees the log, and what a failed transaction has left in it.
  return !dead_ && !read_only();
}

void SqliteStorage::Checkpoint() {
  const int code =
      sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  if (code == SQLITE_OK) {
    log_pages_ = 0;
    if (!read_only()) reserve_.Take();  // There may be room for it now.
  } else if (IsFull(code)) {
    read_only_ = true;
    ballast_.Release();
  } else {
    Fatal(Failure(code, "checkpoint"));
  }
}

void SqliteStorage::Fatal(absl::Status status) {
  dead_ = true;
  if (options_.on_fatal) {
    options_.on_fatal(std::move(status));
  } else {
    std::fprintf(
        stderr, "sheaf: the GCS cannot trust its disk and ends, to recover at its next start: %s\n",
        status.ToString().c_str());
    _exit(74);
  }
}

absl::Status SqliteStorage::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failure(code, "set up");
}

absl::StatusOr<std::string> SqliteStorage::QueryText(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  SHEAF_RETURN_IF_ERROR(Prepare(sql, &statement));
  const int code = sqlite3_step(statement);
  std::string text;
  if (code == SQLITE_ROW) {
    const unsigned char* value = sqlite3_column_text(statement, 0);
    if (value != nullptr) text = reinterpret_cast<const char*>(value);
  }
  const absl::Status failure = code == SQLITE_ROW ? absl::OkStatus() : Failure(code, "check");
  sqlite3_finalize(statement);
  if (!failure.ok()) return failure;
  return text;
}

absl::Status SqliteStorage::Prepare(const char* sql, sqlite3_stmt** statement) {
  const int code =
      sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failure(code, "prepare");
}

absl::Status SqliteStorage::Failure(int code, const char* doing) const {
  const std::string text =
      absl::StrCat(options_.path, ": cannot ", doing, ": ", sqlite3_errstr(code), " (",
                   database_ ? sqlite3_errmsg(database_) : "", ", code ", code, ")");
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    case SQLITE_BUSY:
      return absl::FailedPreconditionError(text + "; another process uses it");
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace sheaf
