// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Storage of embedded clusters: one SQLite database in WAL mode. A thread of its own commits
// whatever has queued up as one transaction with one fsync. Every row carries a checksum of its
// table, key and value.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "gcs/storage/ballast.h"
#include "gcs/storage/storage.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sheaf {

struct SqliteStorageOptions {
  // Made (0600) when missing. "-wal", "-ballast" and "-reserve" files stand beside it.
  std::string path;
  int64_t ballast_bytes = 4 << 20;
  int64_t reserve_bytes = 4 << 20;  // For vital commits on a full disk; some 20 KiB each.
  // The disk failed, or the database is not what was written: this process must not acknowledge
  // anything any more, and recovers by starting anew (a failed fsync must not be repeated: the
  // kernel may have dropped the pages). Called once, on the writer thread. Unset: prints the reason
  // and ends the process at once with status 74 (EX_IOERR).
  std::function<void(absl::Status)> on_fatal = nullptr;
  // Told of each transaction and how long it took, on the writer thread.
  std::function<void(Nanos)> on_commit = nullptr;
  // SQLite's name of the file layer; empty: the system's. Tests put faults there.
  std::string vfs = {};
};

class SqliteStorage final : public Storage {
 public:
  // Opens and checks the database; the calling thread reads the whole of it. `completions` outlives
  // the storage. kFailedPrecondition: not Sheaf's, of another schema version, in use by another
  // process, or on a network file system. kDataLoss: damaged; the message names the file and the
  // reason. kUnavailable: the disk says no.
  static absl::StatusOr<std::unique_ptr<SqliteStorage>> Open(SqliteStorageOptions options,
                                                             Executor& completions);
  // Writes what is queued, then closes; completions are posted.
  ~SqliteStorage() override;

  void Commit(WriteBatch batch, Done done) override;
  void CommitVital(WriteBatch batch, Done done) override;
  absl::Status LoadAll(const Visitor& visit) override;
  // Returns when all that was committed before is written, and its completions are posted.
  void Flush();
  // Copies all that is committed into a new file at `path` (0600), which can be opened in place of
  // this one. Commits go on meanwhile, and each may wait for some milliseconds. `done` is called on
  // the writer thread, or never if the storage is destroyed first; after anything but OK there is
  // no file. kAlreadyExists: there is one. kFailedPrecondition: a copy is under way. Any thread.
  void Backup(std::string path, Done done);
  bool read_only() const override { return read_only_.load(std::memory_order_relaxed); }
  // Transactions so far; with the batches in them it shows what group commit saves. Any thread may
  // call.
  uint64_t transactions() const { return transactions_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    WriteBatch batch;
    Done done;
    bool vital = false;
    absl::Status status;
  };
  void Queue(Pending pending);
  SqliteStorage(SqliteStorageOptions options, Executor& completions);

  absl::Status OpenDatabase();
  absl::Status CheckDatabase();
  absl::Status Execute(const char* sql);
  absl::StatusOr<std::string> QueryText(const char* sql);
  absl::Status Prepare(const char* sql, sqlite3_stmt** statement);
  absl::Status Failure(int code, const char* doing) const;

  // On the writer thread from here on.
  void CommitQueued();
  void CommitGroup(std::vector<Pending> group);
  void Complete(std::vector<Pending> group);
  // kDataLoss: somebody removed or replaced a file, and what is written goes to one without a name.
  absl::Status CheckNamed();
  int WriteTransaction(const std::vector<Pending>& group, bool vital_only = false);
  int WriteVital(const std::vector<Pending>& group);
  int WriteRow(const Write& write);
  bool IsFull(int code) const;
  bool TryResume();
  void Checkpoint();
  absl::Status BeginCopy();
  void CopySome();
  absl::Status FinishCopy();
  void EndCopy(absl::Status status);
  void Fatal(absl::Status status);

  const SqliteStorageOptions options_;
  Executor& completions_;
  Ballast ballast_, reserve_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* put_ = nullptr;
  sqlite3_stmt* erase_ = nullptr;
  sqlite3_stmt* begin_ = nullptr;
  sqlite3_stmt* commit_ = nullptr;
  sqlite3_stmt* rollback_ = nullptr;
  std::pair<uint64_t, uint64_t> database_file_ = {};  // Device and inode.
  std::pair<uint64_t, uint64_t> log_file_ = {};       // Zeros before the first transaction.
  int log_pages_ = 0;  // Of the write-ahead log after the last transaction.
  bool dead_ = false;  // A fatal fault: nothing is touched any more.
  std::atomic<bool> read_only_ = false;
  std::atomic<uint64_t> transactions_ = 0;

  struct Copy;  // sqlite_storage_backup.cc.
  struct CopyDeleter {
    void operator()(Copy* copy) const;
  };
  std::unique_ptr<Copy, CopyDeleter> copy_;  // The writer thread's.

  Mutex mutex_;
  std::vector<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  ThreadExecutor writer_;  // Last: ends first.
};

}  // namespace sheaf
