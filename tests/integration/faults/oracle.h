// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the tests of the fault rows share: their seed, values that can be checked, a node of their
// own, and the oracle of every row. "Nothing lost" means:
//   O1  each call ends in one value or typed error, in bounded time: every Get here has a bound,
//       and running out of it fails
//   O2  a value is F(seed, id): Mix below
//   O4  when all is quiet, nothing is held: no objects, pins or leases, every CPU free, no
//       descriptors or mappings gathered in the node, no spilled files; and after the node's end no
//       process and no session is left
//   O5  a call without retries ran at most once: RunMarks
//   O6  the node itself lives, unless the row kills it
// O3, a linearizable control plane, is row 11's own check: acknowledged writes are there.
//
//   FAULT_SEED=N   replays a run; printed at the start
//   FAULT_LONG=1   the long forms; `./do soak`
//   FAULT_COUNT=N  how many kills, rounds or seconds, instead of what the form says
#pragma once

#include <sheaf/sheaf.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/wait_until_for_test.h"

namespace faults {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using sheaf::WaitUntil;

extern uint64_t seed;
extern int argc;  // Of main: drivers pass them on, workers are started with them.
extern char** argv;

uint64_t Mix(uint64_t x);
std::vector<uint64_t> Values(uint64_t id, size_t count);  // F(seed, id), large.
bool AreValues(std::span<const uint64_t> values, uint64_t id, size_t count);
bool LongForm();
int Count(int short_form, int long_form);
double Seconds(Clock::duration duration);
uint64_t MonotonicNs();  // The same in all processes.

// One line of figures that `./do soak` puts into its table.
void Figures(const std::string& row, const std::string& words);

// A directory that goes with this object, below $TMPDIR or /tmp. With `tmpfs_bytes` a file system
// of that size of its own, seen by this process and its children only; `ok()` is false where that
// takes rights that are missing.
class Scratch {
 public:
  explicit Scratch(uint64_t tmpfs_bytes = 0);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool ok() const { return ok_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
  bool ok_ = true;
};

// Processes that live and whose environment says SHEAF_DIR=`directory`, but this one.
std::vector<pid_t> ProcessesOf(const std::string& directory);
std::string CommandOf(pid_t pid);
pid_t ParentOf(pid_t pid);  // 0: it is gone.
void KillAll(const std::string& directory);

// What the node says of itself.
struct NodeState {
  uint64_t objects = 0, pinned_bytes = 0, used_bytes = 0, spilled_bytes = 0, capacity_bytes = 0;
  int workers = 0, leased = 0;  // `leased`: of all but detached actors too.
  double cpus_free = 0, cpus = 0;
};
NodeState StateOfNode();
// The sum of all lines of a metric that contain `label`.
double Metric(const std::string& name, const std::string& label = "");

struct NodeOptions {
  double cpus = 4;
  int64_t store_bytes = 128 << 20;
  bool daemon = false;     // Started by `sheaf start`; else Init starts it.
  std::string directory;   // Where sessions go; empty: one of its own.
  std::string failpoints;  // Of the node's process.
  std::string worker_failpoints;
};

// A node, and this process as its driver. Its end is part of the oracle.
class Node {
 public:
  explicit Node(const NodeOptions& options);
  ~Node();
  // O4 and O6. `held`: leases that stay (detached actors).
  void RequireQuiet(int held = 0);
  // O6 does not hold: the row ends the node.
  void ExpectDeath() { expects_death_ = true; }
  pid_t pid() const { return pid_; }
  const std::string& directory() const { return directory_; }
  const std::string& session() const { return session_; }
  // The files of spilled objects.
  std::vector<std::string> SpillFiles() const;

  // Daemons: kills it, goes on with its session, and joins it again.
  void Kill();
  void Resume();
  void Join();
  void Leave() { sheaf::Shutdown(); }

 private:
  void StartDaemon(const std::string& resume);

  const NodeOptions options_;
  std::optional<Scratch> scratch_;
  std::string directory_;
  std::string session_;
  pid_t pid_ = 0;
  bool expects_death_ = false;
  size_t descriptors_ = 0;
  size_t mappings_ = 0;
};

// Counts executions across processes: a file to which each run appends its call's number.
class RunMarks {
 public:
  explicit RunMarks(const std::string& folder);
  const std::string& path() const { return path_; }
  static void Add(const std::string& path, uint64_t call);
  // Of each call that ran: how often.
  std::vector<std::pair<uint64_t, int>> Counts() const;
  int Most() const;

 private:
  std::string path_;
};

// Fills the file system of `folder` with one file of its own, which goes with this object.
class FullDisk {
 public:
  explicit FullDisk(const std::string& folder, uint64_t leave_bytes = 0);
  ~FullDisk() { Free(); }
  void Free();

 private:
  std::string path_;
};

// The key-value store of the GCS, which the public API has no words for. Errors by their kind;
// kNone: done.
sheaf::v1::ErrorKind KeyPut(const std::string& key, const std::string& value,
                            std::chrono::seconds bound = 10s);
// Whether it was added; null: no answer.
std::optional<bool> KeyPutIfAbsent(const std::string& key, const std::string& value,
                                   std::chrono::seconds bound = 10s);
std::optional<std::string> KeyGet(const std::string& key, std::chrono::seconds bound = 10s);
// An array of the store, waiting for room for so long; null: the store is full.
std::optional<sheaf::ObjectRef<std::vector<uint64_t>>> PutWithin(uint64_t id, size_t count,
                                                                 std::chrono::milliseconds bound,
                                                                 std::string* error);

}  // namespace faults
