// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The logs of any node, read piece by piece through the one that is asked.
// Errors of all: kInvalidArgument: not a name; kNotFound: no such log, or node; kAborted: its node
// has died; kUnavailable: it is late or busy, or the node that is asked is gone: another try may do.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "dashboard/asker.h"

namespace sheaf::dashboard {

struct LogName {
  NodeNumber node = 0;  // 0: that which is asked.
  std::string name;
  bool only_file = false;  // Without its older parts (NAME.1), where its end is wanted.
};

// Of `node`; the files are in `log_files`. Blocks.
absl::StatusOr<proto::StateAnswer> ListLogs(const AskNode& ask, NodeNumber node,
                                            const std::string& glob);

// Blocks. One thread.
class NodeLog {
 public:
  NodeLog(AskNode ask, LogName log) : ask_(std::move(ask)), log_(std::move(log)) {}

  // The last `lines` lines, or what there is (64 MiB at most) with a number below 0; `most` bytes
  // of them.
  absl::StatusOr<proto::LogPiece> Last(int64_t lines, uint32_t most);
  // What comes behind the piece before.
  absl::StatusOr<proto::LogPiece> Next(uint32_t most);
  void Seek(uint64_t offset) {
    offset_ = offset;
    mark_ = 0;
  }
  uint64_t offset() const { return offset_; }
  const LogName& log() const { return log_; }

 private:
  absl::StatusOr<proto::LogPiece> Ask(proto::LogQuestion question, uint32_t most);

  AskNode ask_;
  LogName log_;
  uint64_t offset_ = 0;
  uint32_t mark_ = 0;
};

// For the reader, in front of `piece`: that it does not begin with the byte that was wanted. Empty:
// it does.
std::string NoteOn(const proto::LogPiece& piece, uint64_t wanted);

}  // namespace sheaf::dashboard
