// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS keeps across its crashes: rows in tables, changed by atomic batches.
// tests/conformance holds every implementation to this text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace sheaf {

enum class Table : uint8_t {  // The numbers are on disk: never change or re-use one.
  kMeta = 1,                  // Cluster id, term, the last numbers given.
  kNodes = 2,
  kJobs = 3,
  kActors = 4,
  kGroups = 5,
  kKeyValues = 7,
  kAnswers = 8,  // First answers to commands, until their clients confirm them.
  kKeyOwners = 9,
  kSubmissions = 10,
};

// Puts a row, or deletes it when there is no value (no error if it was not there).
struct Write {
  Table table;
  std::string key;
  std::optional<std::string> value;
};
using WriteBatch = std::vector<Write>;

// Commit may be called from one thread at a time. Completions come in the order of the calls,
// through the executor that the implementation was given, never inside Commit.
class Storage {
 public:
  using Done = std::function<void(absl::Status)>;
  using Visitor = std::function<void(Table, std::string_view key, std::string_view value)>;
  virtual ~Storage() = default;
  // Makes all of `batch` durable or none of it. OK: it is on disk, whatever dies now.
  // kResourceExhausted: the disk is full, nothing was written, and the same holds for later batches
  // until space is back, which is noticed by itself. After any other fault of the disk `done` is
  // never called: the process ends and recovers.
  virtual void Commit(WriteBatch batch, Done done) = 0;
  // The same for what others wait for without end if it cannot be said: that a node is dead, that a
  // job has ended, that a term begins. A few hundred of these still get to a disk that is full.
  virtual void CommitVital(WriteBatch batch, Done done) = 0;
  // Shows every row, by table and then by key in byte order. Only before the first Commit.
  // kDataLoss: a row is not what was written; the message names the file and the row.
  virtual absl::Status LoadAll(const Visitor& visit) = 0;
  // The disk is full: Commit fails, CommitVital may not. Any thread may call.
  virtual bool read_only() const = 0;
};

}  // namespace sheaf
