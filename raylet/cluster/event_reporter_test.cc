// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/event_reporter.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/fake_clock.h"
#include "base/testing/recording_transport_for_test.h"

namespace sheaf {
namespace event_reporter_test {

struct Fixture {
  FakeClock clock;
  RecordingTransport transport;
  GcsLink gcs{3, clock, transport};
  EventReporter reporter{clock, gcs};

  // What the GCS has been told since the last call.
  std::vector<proto::EventRow> Told() {
    std::vector<proto::EventRow> events;
    for (const auto& request : transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      events.push_back(request.report_event().event());
    }
    return events;
  }
};

proto::Death DeathOf(proto::Death::Cause cause, int code = 0) {
  proto::Death death;
  death.set_cause(cause);
  death.set_code(code);
  death.set_message("signal 11");
  return death;
}

LeaseSpec Actor() {
  LeaseSpec spec;
  spec.actor = true;
  spec.actor_id = ActorId{7, 8};
  spec.name = "Counter";
  return spec;
}

TEST_CASE("an actor that dies unwanted is an event, a worker of tasks only for want of memory") {
  Fixture node;
  const LeaseSpec actor = Actor();
  LeaseSpec task;
  task.name = "square";
  node.reporter.OnDied(&actor, 12, DeathOf(proto::Death::SIGNALLED, 11));
  node.reporter.OnDied(&task, 13, DeathOf(proto::Death::SIGNALLED, 11));
  node.reporter.OnDied(nullptr, 14, DeathOf(proto::Death::EXITED, 1));
  node.reporter.OnDied(&task, 15, DeathOf(proto::Death::OUT_OF_MEMORY));
  const std::vector<proto::EventRow> told = node.Told();
  REQUIRE(told.size() == 2);
  CHECK(told[0].kind() == proto::EventRow::ACTOR_DIED);
  CHECK(told[0].message() == "actor Counter (pid 12) died: signal 11");
  CHECK(told[0].id() == actor.actor_id.ToHex());
  CHECK(told[1].kind() == proto::EventRow::OUT_OF_MEMORY);
  CHECK(told[1].message() == "a worker of square (pid 15) died: signal 11");
}

TEST_CASE("ends that somebody wanted are no events") {
  Fixture node;
  const LeaseSpec actor = Actor();
  for (const auto cause :
       {proto::Death::KILLED, proto::Death::LEFT, proto::Death::NODE_DIED, proto::Death::EXITED}) {
    node.reporter.OnDied(&actor, 12, DeathOf(cause));
  }
  CHECK(node.Told().empty());
}

TEST_CASE("the same words are told once a minute") {
  Fixture node;
  for (int i = 0; i < 3; ++i) node.reporter.OnInfeasible(nullptr, "needs 8 GPU");
  CHECK(node.Told().size() == 1);
  node.clock.Advance(EventReporter::kSameAgain + 1);
  node.reporter.OnInfeasible(nullptr, "needs 8 GPU");
  CHECK(node.Told().size() == 1);
}

TEST_CASE("a flood is cut, and what was left out is counted") {
  Fixture node;
  for (int i = 0; i < 3 * EventReporter::kMostPerSecond; ++i) {
    node.reporter.OnInfeasible(nullptr, absl::StrCat("needs ", i));
  }
  CHECK(node.Told().size() == EventReporter::kMostPerSecond);
  node.clock.Advance(2 * kSecond);
  node.reporter.OnInfeasible(nullptr, "needs more");
  const std::vector<proto::EventRow> told = node.Told();
  REQUIRE(told.size() == 1);
  CHECK(told[0].message() == "a task: needs more (and 40 more before)");
}

TEST_CASE("failures of the disk are told as they become more") {
  Fixture node;
  node.reporter.OnDiskFailures(0);
  CHECK(node.Told().empty());
  node.reporter.OnDiskFailures(1);
  node.reporter.OnDiskFailures(1);
  CHECK(node.Told().size() == 1);
  node.clock.Advance(EventReporter::kSameAgain + 1);
  node.reporter.OnDiskFailures(1);
  CHECK(node.Told().empty());
  node.reporter.OnDiskFailures(2);
  CHECK(node.Told().size() == 1);
}

TEST_CASE("while the GCS is away nothing piles up") {
  Fixture node;
  node.gcs.SetUp(false);
  node.reporter.OnInfeasible(nullptr, "needs 8 GPU");
  node.gcs.SetUp(true);
  CHECK(node.Told().empty());
  node.reporter.OnInfeasible(nullptr, "needs 8 GPU");
  CHECK(node.Told().size() == 1);
}

}  // namespace event_reporter_test
}  // namespace sheaf
