// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the processes of a node print, line by line as JSON (base/text/ecs.h) in one file for log
// shippers, beside the plain files. Lines come in the order of each file, once, also over rotations
// and while the disk is full, as far as the older parts of a file reach. A thread of its own.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/text/json.h"
#include "raylet/logs/event_file.h"
#include "raylet/logs/log_files.h"

namespace sheaf {

using EventFields = std::vector<std::pair<std::string, std::string>>;

// One file of a process.
struct EventSource {
  std::string name;     // As LogFiles has it.
  std::string dataset;  // "sheaf.worker"
  std::string level;    // Of lines that do not say their own.
  int32_t os_pid = 0;
  EventFields fields;   // "worker" -> "1.7"
  std::string process;  // What Know says of it holds of this file, too. Empty: nothing.
};

class LogEvents {
 public:
  // `files` outlives it. `fields`: of all of them.
  LogEvents(const LogFiles& files, EventFileOptions out, JsonObject fields)
      : files_(files), out_(std::move(out)), fields_(std::move(fields)) {}
  // Writes what is there first.
  ~LogEvents() { Stop(); }
  LogEvents(const LogEvents&) = delete;
  LogEvents& operator=(const LogEvents&) = delete;

  void Add(EventSource source);
  // What there is to say of a process besides, as it is when its lines are read: `more` is called on
  // the thread. Replaces what was known.
  void Know(const std::string& process, std::function<EventFields()> more);
  // Nobody writes that file any more: with what is left of it, it is forgotten.
  void End(const std::string& name);
  // Whether it has not even read what was moved out of that file: to move more might drop some.
  bool IsBehind(const std::string& name) const;
  // Something may have been written. Does nothing while an earlier look is still to come.
  void Look();
  void Stop();

 private:
  struct Stream {
    EventSource source;
    uint64_t offset = 0;
    uint32_t mark = 0;
    std::string partial;  // Of a line that has no end yet.
    bool ended = false;
  };
  // On the thread.
  void LookNow();
  // True: more of it may be there.
  bool ReadSome(Stream& stream);
  bool Write(Stream& stream, const proto::LogPiece& piece, bool is_last);
  std::string FieldsOf(const EventSource& source) const;
  void ForgetUnused();

  const LogFiles& files_;
  EventFile out_;
  const JsonObject fields_;
  absl::btree_map<std::string, Stream> streams_;
  absl::btree_map<std::string, std::function<EventFields()>> known_;  // By process.
  bool failing_ = false;
  mutable Mutex mutex_;
  absl::btree_map<std::string, uint64_t> read_ ABSL_GUARDED_BY(mutex_);  // Bytes, by name.
  std::atomic<bool> look_is_due_ = false;
  ThreadExecutor thread_{"log-events"};  // Last: it uses the others.
};

}  // namespace sheaf
