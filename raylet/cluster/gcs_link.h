// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's own conversation with the GCS: numbered commands, each kept until it is answered, so
// that neither a lost frame nor a restart of the GCS loses one. Pure; one thread; Clock and
// Transport outlive it.
//
// While the link to the GCS is known to be down nothing is sent, as it would pile up there: when
// the link is back, or the GCS begins another term, all that is not answered goes out once. Else a
// command is repeated ever more rarely: what the GCS has not answered on a living link it is at
// work on, or has dropped when it was too busy.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"

namespace sheaf {

class GcsLink {
 public:
  using Done = std::function<void(const proto::GcsReply&)>;
  static constexpr Nanos kResendAfter = 500 * kMillisecond;  // Then twice as long each time,
  static constexpr Nanos kLongestPause = 8 * kSecond;        // up to this.

  GcsLink(NodeNumber node, Clock& clock, Transport& transport)
      : client_(RayletOf(node)), clock_(clock), transport_(transport) {}

  // `done` is called once, when the answer is here; at once never.
  void Command(proto::GcsRequest request, Done done);
  // A wish that nobody waits for: when the disk of the GCS is full it is said again later. It must
  // be as good then as now. `done`, which may be empty, is called when it is done.
  void Insist(proto::GcsRequest request, Done done = nullptr);
  // A command that says how things are: `fill` writes its body anew each time it is sent, as an
  // old word sent again would deny what has come since. One at a time: it replaces the last one.
  void Describe(std::function<void(proto::GcsRequest*)> fill);
  // Soft: sent once, not answered; not at all while the link is down.
  void Report(proto::GcsRequest request);
  // A kGcsReply to this raylet. Of repeats the first counts.
  void OnReply(const proto::GcsReply& reply);
  void Tick();       // Resends.
  void ResendAll();  // The GCS has begun another term, or the link is back.
  // The link is lost: nothing is sent before it is up again.
  void SetUp(bool up) { up_ = up; }
  bool up() const { return up_; }
  size_t unanswered() const { return open_.size(); }

 private:
  struct Open {
    proto::GcsRequest request;
    Done done;
    Nanos send_again_at = 0;
    Nanos pause = 0;  // Between the last two times; 0: as if it had not been sent.
    std::function<void(proto::GcsRequest*)> fill;  // Of Describe.
    bool insists = false;
  };
  Open& Add(proto::GcsRequest request);
  void Send(Open& open);

  const ProcessId client_;
  Clock& clock_;
  Transport& transport_;
  bool up_ = true;
  uint64_t last_sequence_ = 0;
  uint64_t description_ = 0;  // The sequence of the last Describe.
  absl::btree_map<uint64_t, Open> open_;
};

}  // namespace sheaf
