// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What all nodes do now, sent to those who watch: one question a period to the cluster, however many
// watch, and none while nobody does.
//
// GET /api/sheaf/live?lanes=N is a stream of server-sent events (WHATWG HTML, 9.2):
//   event: digest    DigestJson: at first what there is of the last minute, then what is new
//   event: skipped   {"events":N}: the viewer was slow, so many were left out before the next one
//   event: trouble   {"message":...}: there is no answer now
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "dashboard/asker.h"
#include "http/message.h"
#include "http/router.h"

namespace sheaf::dashboard {

// Thread-safe.
class LiveFeed {
 public:
  static constexpr Nanos kPeriod = 250 * kMillisecond, kPeriodOfMany = kSecond;
  static constexpr int kMany = 50;             // Nodes.
  static constexpr int kMostLanesInAll = 200;  // At least one of each node.

  explicit LiveFeed(AskNode ask) : ask_(std::move(ask)) {}
  ~LiveFeed();
  LiveFeed(const LiveFeed&) = delete;
  LiveFeed& operator=(const LiveFeed&) = delete;

  // Until the viewer goes. `lanes` of each node.
  void Add(std::shared_ptr<http::Stream> stream, uint32_t lanes);
  // `router`'s server ends before this.
  void AddRoutes(http::Router& router);

 private:
  struct Viewer {
    std::shared_ptr<http::Stream> stream;
    uint32_t lanes = 0;
    bool knows_the_past = false;
    uint64_t skipped = 0;
  };
  using Viewers = std::list<Viewer>;

  void Step();
  void TellAll(Viewers& viewers);
  void LookAtEvents();
  absl::StatusOr<proto::StateAnswer> AskDigests(uint32_t lanes, bool from_the_start);
  void NameLate(proto::StateAnswer& answer) const;
  void KeepCursors(const proto::StateAnswer& answer);
  void Tell(Viewers& viewers, bool newcomers, const proto::StateAnswer& digests,
            const proto::StateAnswer& events);
  static void Send(Viewer& viewer, const std::string& event, const std::string& data);

  const AskNode ask_;
  Mutex mutex_;
  Viewers viewers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadExecutor> thread_ ABSL_GUARDED_BY(mutex_);  // From the first viewer on.

  // Of the thread alone.
  Nanos next_ = 0, next_events_ = 0, period_ = kPeriod;
  int nodes_ = 0;  // As the last answer had them; 0: not known.
  google::protobuf::RepeatedPtrField<proto::DigestCursor> cursors_;
  proto::StateAnswer past_events_, new_events_;
  uint64_t last_event_ = 0;
};

}  // namespace sheaf::dashboard
