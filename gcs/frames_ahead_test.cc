// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/frames_ahead.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {
namespace frames_ahead_test {

constexpr ProcessId kRaylet = RayletOf(3), kProcess{3, 7};

template <class Message>
bool Ahead(FrameKind kind, ProcessId client, Message message) {
  message.set_client(client.packed());
  return GoesAhead(kind, message.SerializeAsString());
}

TEST_CASE("heartbeats, their answers and what raylets follow do not wait behind bulk") {
  proto::GcsRequest heartbeat, subscribe, put, gone;
  heartbeat.mutable_heartbeat()->set_number(1);
  subscribe.mutable_subscribe()->set_subscription(1);
  put.mutable_kv_put()->set_value(std::string(1 << 20, 'x'));
  gone.mutable_process_gone()->set_process(kProcess.packed());
  CHECK(Ahead(FrameKind::kGcsRequest, kRaylet, heartbeat));
  CHECK(Ahead(FrameKind::kGcsRequest, kRaylet, subscribe));
  CHECK_FALSE(Ahead(FrameKind::kGcsRequest, kProcess, subscribe));
  CHECK_FALSE(Ahead(FrameKind::kGcsRequest, kProcess, put));
  // It must not come before the registration of what has gone.
  CHECK_FALSE(Ahead(FrameKind::kGcsRequest, kRaylet, gone));

  proto::GcsReply lease, snapshot, values;
  lease.mutable_heartbeat()->set_lease_ns(1);
  snapshot.mutable_snapshot()->set_number(1);
  values.mutable_kv_values();
  CHECK(Ahead(FrameKind::kGcsReply, kRaylet, lease));
  CHECK(Ahead(FrameKind::kGcsReply, kRaylet, snapshot));
  CHECK_FALSE(Ahead(FrameKind::kGcsReply, kProcess, snapshot));
  CHECK_FALSE(Ahead(FrameKind::kGcsReply, kProcess, values));

  proto::GcsEvent delta, order;
  delta.mutable_delta()->set_number(1);
  order.mutable_start_actor();
  CHECK(Ahead(FrameKind::kGcsEvent, kRaylet, delta));
  CHECK_FALSE(Ahead(FrameKind::kGcsEvent, kProcess, delta));
  CHECK_FALSE(Ahead(FrameKind::kGcsEvent, kRaylet, order));
}

TEST_CASE("while the GCS is away nobody keeps heartbeats, and commands only who made them") {
  proto::GcsRequest heartbeat, command, rows;
  heartbeat.mutable_heartbeat()->set_number(1);
  command.set_sequence(7);
  command.mutable_kv_put()->set_value(std::string(1 << 20, 'x'));
  rows.mutable_actor_rows()->add_rows();  // Said once.
  const auto again = [](const proto::GcsRequest& request) {
    return IsSaidAgain(FrameKind::kGcsRequest, request.SerializeAsString());
  };
  CHECK(again(heartbeat));
  CHECK(again(command));
  CHECK_FALSE(again(rows));
  CHECK_FALSE(IsSaidAgain(FrameKind::kGcsReply, command.SerializeAsString()));
  CHECK_FALSE(IsSaidAgain(FrameKind::kGcsRequest, "\xff\xff\xff"));
}

TEST_CASE("what is no message of the GCS goes where it was put") {
  CHECK_FALSE(GoesAhead(FrameKind::kGcsRequest, "\xff\xff\xff"));
  CHECK_FALSE(GoesAhead(FrameKind::kPushTask, ""));
}

}  // namespace frames_ahead_test
}  // namespace sheaf
