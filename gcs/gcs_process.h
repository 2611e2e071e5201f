// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The GCS of real clusters: storage, service, and the loop thread that owns them. The node of a
// program has it in its own process, a head in one beside it (cli/gcs_child.h); neither waits for
// the other.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/transport.h"
#include "gcs/gcs_service.h"
#include "gcs/storage/memory_storage.h"
#include "gcs/storage/sqlite_storage.h"
#include "metrics/page.h"

namespace sheaf {

struct GcsProcessOptions {
  GcsOptions gcs;
  std::string database;  // File of the SQLite storage. Empty: everything is kept in memory and lost
                         // with the process.
  // Hands a frame to the raylet `to` (as it called itself in Post). Called on the loop thread; must
  // not block.
  std::function<void(ProcessId to, FrameKind kind, std::string body)> send;
  // As SqliteStorageOptions::on_fatal: unset, this process ends at once.
  std::function<void(absl::Status)> on_fatal = nullptr;
  // Outlives the process. Not null: the figures of the GCS are kept there.
  metrics::Page* metrics = nullptr;
  Nanos tick_period = 100 * kMillisecond;  // 0: time goes on by PostTick alone.
  // After a pause of this process nothing leaves for a while: if others follow a later GCS by now,
  // Silence is called in that time, and what was answered to nobody was never acknowledged.
  Nanos longest_pause = 3 * kSecond;
  Nanos held_after_pause = 2 * kSecond;  // Links are dialled once a second.
};

class GcsProcess {
 public:
  // The errors of SqliteStorage::Open and GcsService::Start. When it returns, the GCS takes
  // requests.
  static absl::StatusOr<std::unique_ptr<GcsProcess>> Start(GcsProcessOptions options);
  ~GcsProcess();

  // A frame from the raylet `from`, {0, k} while it has no number. Any thread; never blocks for the
  // disk.
  void Post(ProcessId from, FrameKind kind, std::string body);
  // Time goes on: deadlines are looked at, a pause since the last tick is noticed. Any thread.
  void PostTick();
  // As SqliteStorage::Backup. kFailedPrecondition: everything is kept in memory. Any thread.
  void Backup(std::string path, std::function<void(absl::Status)> done);
  // The term is over: nothing leaves any more. Any thread.
  void Silence() { silenced_ = true; }
  // Answers what has been posted, closes the storage and ends the threads. Idempotent.
  void Stop();
  // Any thread but the loop; waits for the loop. Empty after Stop.
  GcsStats Stats();
  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t term() const { return term_; }
  // As of GcsService, when it started: who is told that a term has begun.
  const std::map<NodeNumber, std::string>& addresses() const { return addresses_; }

 private:
  class CallbackTransport;
  explicit GcsProcess(GcsProcessOptions options);
  GcsStats LoopStats();
  void Tick();

  const GcsProcessOptions options_;
  MonotonicClock clock_;
  SeededRandom random_;
  std::unique_ptr<CallbackTransport> transport_;
  MemoryStorage::Disk disk_;  // Of the in-memory storage.
  std::unique_ptr<Storage> storage_;
  SqliteStorage* sqlite_ = nullptr;  // The same, if it is one.
  std::unique_ptr<GcsService> service_;
  std::string cluster_id_;
  uint64_t term_ = 0;
  std::map<NodeNumber, std::string> addresses_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> silenced_ = false;
  Nanos next_metrics_ = 0;
  std::unique_ptr<ThreadExecutor> loop_;
};

}  // namespace sheaf
