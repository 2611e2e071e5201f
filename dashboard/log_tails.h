// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Follows the logs of submissions for those that watch them, each until its submission has ended
// and all of its log is sent. One thread for all of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/unique_fd.h"
#include "dashboard/asker.h"
#include "http/message.h"

namespace sheaf::dashboard {

// The log is longer than this: only its end is shown.
inline constexpr off_t kMaxShownLog = 64 << 20;

class LogTails {
 public:
  explicit LogTails(AskNode ask);
  ~LogTails() { thread_.Stop(); }
  LogTails(const LogTails&) = delete;
  LogTails& operator=(const LogTails&) = delete;

  // Sends the file at `path`, which may not be there yet, from `offset` on. Any thread.
  void Add(std::string submission_id, std::string path, off_t offset,
           std::shared_ptr<http::Stream> stream);

 private:
  struct Tail {
    std::string id;
    std::string path;
    off_t offset = 0;
    std::shared_ptr<http::Stream> stream;
    UniqueFd file;
    std::string unsent;  // The stream had no room for it.
    bool has_ended = false;
    Nanos next_question = 0;
    Nanos unanswered_since = 0;
  };
  void Tick();
  bool Step(Tail& tail);
  bool SendMore(Tail& tail);
  void AskState(Tail& tail);

  const AskNode ask_;
  std::vector<Tail> tails_;
  ThreadExecutor thread_;  // Last: it uses the others.
};

}  // namespace sheaf::dashboard
