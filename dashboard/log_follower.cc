// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/log_follower.h"

#include <utility>

#include "dashboard/log_files.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kPeriod = 250 * kMillisecond;
constexpr uint64_t kPart = 64 * 1024;

// Sends what there is. False: nobody watches, or there is nothing to read.
bool Advance(FollowedLog& log) {
  while (log.stream->open()) {
    const absl::StatusOr<LogPart> part = ReadLogFrom(log.directory, log.name, log.sent, kPart);
    if (!part.ok()) {
      log.stream->Close(1011, "the log has gone");
      return false;
    }
    if (part->bytes.empty()) return true;
    // A slow viewer gets it later, from the file.
    if (!log.stream->Write(log.plain ? WithoutAnsiCodes(part->bytes) : part->bytes)) break;
    log.sent = part->end;
  }
  return log.stream->open();
}

}  // namespace

LogFollower::LogFollower() : thread_({"sheaf-follow", kPeriod, [this] { Tick(); }}) {}

void LogFollower::Add(FollowedLog log) {
  const MutexLock lock(mutex_);
  logs_.push_back(std::move(log));
}

void LogFollower::Tick() {
  std::vector<FollowedLog> logs;
  {
    const MutexLock lock(mutex_);
    logs.swap(logs_);
  }
  for (FollowedLog& log : logs) {
    if (Advance(log)) Add(std::move(log));
  }
}

}  // namespace sheaf::dashboard
