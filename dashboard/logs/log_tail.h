// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A log from some byte on, until there will be no more of it: step by step, for whoever has a thread
// that may wait. What is held is one piece, which is bounded in the form that the viewer wants: zeros
// of a log are six times as long in JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "dashboard/asker.h"
#include "dashboard/logs/log_text.h"
#include "dashboard/logs/node_log.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {

inline constexpr uint32_t kLogPieceBytes = 128 << 10;  // Of text that is sent at once.

struct TailedLog {
  NodeLog log;
  LogText text{LogText::Form::kAsItIs};
  // Not empty: the log is that of this submission, wherever it runs, until it has ended.
  std::string submission_id{};
  // The reader counts bytes: no words of others come in between, and it ends where bytes are missing.
  bool is_counted = false;
  std::optional<uint64_t> until{};  // Up to there, and not on.
};

class LogTail {
 public:
  enum class End : uint8_t {
    kNone,
    kAll,     // All has been said.
    kBroken,  // Not all that there was, or will be.
  };
  struct Step {
    std::string text;  // Of the log; and in brackets what is to be said of it.
    End end = End::kNone;
    bool more = false;  // Another step may have some at once; else it is worth while in a moment.
  };

  // `ask`: as `log` has it.
  LogTail(AskNode ask, TailedLog tailed) : ask_(std::move(ask)), tailed_(std::move(tailed)) {}

  // Blocks while nodes are asked. Not after an end.
  Step Next();

 private:
  // Since when something has failed, again and again.
  class Trouble {
   public:
    bool IsTooLong(bool failed);

   private:
    Nanos since_ = 0;
  };
  Step OnPiece(const proto::LogPiece& piece, uint64_t wanted, bool had_ended);
  Step OnTrouble(const absl::Status& status, bool had_ended);
  Step Finish(End end, absl::string_view words, std::string text = {});
  // nullopt: it is known where the submission runs.
  std::optional<Step> AskState();
  void OnState(const proto::GcsReply& reply);

  const AskNode ask_;
  TailedLog tailed_;
  bool submission_has_ended_ = false;
  Nanos next_question_ = 0;
  Trouble trouble_, head_trouble_;
};

}  // namespace sheaf::dashboard
