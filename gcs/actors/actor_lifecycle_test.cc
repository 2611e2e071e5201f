// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors: orders, reports, restarts, and what a GCS that begins anew makes of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "gcs/actors/actor_state.h"
#include "gcs/actors/actor_world_for_test.h"

namespace sheaf {
namespace actor_lifecycle_test {

using Info = proto::ActorInfo;

SCENARIO("the life of an actor, every state and event") {
  struct Row {
    Info::State state;
    ActorEvent event;
    bool may_restart;
    int next;  // -1: dropped.
    bool costs_restart;
  };
  using enum ActorEvent;
  const std::vector<Row> rows = {
      {Info::PENDING, kAccepted, true, Info::STARTING, false},
      {Info::PENDING, kStarted, true, Info::ALIVE, false},
      {Info::PENDING, kDied, true, Info::RESTARTING, true},
      {Info::PENDING, kDied, false, Info::DEAD, false},
      {Info::PENDING, kLost, false, Info::PENDING, false},
      {Info::STARTING, kAccepted, true, Info::STARTING, false},
      {Info::STARTING, kStarted, true, Info::ALIVE, false},
      {Info::STARTING, kDied, false, Info::DEAD, false},
      {Info::STARTING, kLost, false, Info::PENDING, false},
      {Info::ALIVE, kAccepted, true, -1, false},
      {Info::ALIVE, kStarted, true, -1, false},
      {Info::ALIVE, kDied, true, Info::RESTARTING, true},
      {Info::ALIVE, kDied, false, Info::DEAD, false},
      {Info::ALIVE, kLost, true, Info::RESTARTING, true},
      {Info::ALIVE, kLost, false, Info::DEAD, false},
      {Info::ALIVE, kKilled, true, Info::DEAD, false},
      {Info::RESTARTING, kAccepted, true, Info::STARTING, false},
      {Info::RESTARTING, kStarted, true, Info::ALIVE, false},
      {Info::RESTARTING, kLost, false, Info::RESTARTING, false},
      {Info::RESTARTING, kKilled, true, Info::DEAD, false},
      {Info::DEAD, kStarted, true, -1, false},
      {Info::DEAD, kKilled, true, -1, false},
  };
  for (const Row& row : rows) {
    INFO(Info::State_Name(row.state)
         << " " << static_cast<int>(row.event) << " " << row.may_restart);
    const std::optional<ActorStep> step = Next(row.state, row.event, row.may_restart);
    CHECK((step ? static_cast<int>(step->next) : -1) == row.next);
    if (step) CHECK(step->costs_restart == row.costs_restart);
  }
}

SCENARIO(
    "a detached actor is ordered when its first incarnation is durable, and found when it runs") {
  ActorWorld world;
  world.storage().hold = true;
  world.Send(world.driver, world.Registration("name", /*detached=*/true));
  CHECK(world.Starts(world.node).empty());
  world.storage().hold = false;
  world.storage().ReleaseAll();
  const std::vector<proto::GcsEvent> events = world.TakeEvents(RayletOf(world.node));
  REQUIRE(events.size() == 1);
  CHECK(events[0].start_actor().incarnation() == 1);
  CHECK(events[0].start_actor().creation() == "creation task");
  CHECK(events[0].start_actor().job().job() == world.job);
  CHECK_FALSE(events[0].start_actor().driver_is_gone());
  CHECK(world.Lookup(world.id).state() == Info::PENDING);

  WHEN("the raylet does not answer, it is told again, and not once it has") {
    world.Pass(3 * kSecond, {world.node});
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{1, 1, 1});
    auto report = world.Report(1);
    report.set_pending("waits for 1 CPU");
    world.SendReport(world.node, report);
    CHECK(world.Lookup(world.id).state() == Info::STARTING);
    CHECK(world.Lookup(world.id).words() == "waits for 1 CPU");
    world.Pass(3 * kSecond, {world.node});
    CHECK(world.Starts(world.node).empty());
    world.Started(world.node, 1);
    world.Pass(10 * kSecond, {world.node});
    CHECK(world.Starts(world.node).empty());
    CHECK(world.Lookup(world.id).state() == Info::ALIVE);
    CHECK(ProcessId::Unpack(world.Lookup(world.id).process()) == ProcessId{world.node, 9});
  }
  WHEN("its job ends, it stays") {
    world.Started(world.node, 1);
    proto::GcsRequest gone;
    gone.mutable_process_gone()->set_process(world.driver.packed());
    world.Ask(RayletOf(world.node), gone);
    CHECK(world.LookupName("name").actor().state() == Info::ALIVE);
  }
}

SCENARIO("a detached actor restarts as often as it may, each time under a number of its own") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/2));
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{1});
  world.Started(world.node, 1);
  world.Died(world.node, 1);
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  CHECK(world.Lookup(world.id).state() == Info::RESTARTING);
  CHECK(world.Lookup(world.id).process() == 0);
  CHECK(world.Lookup(world.id).death().message() == "killed by signal 11");
  world.Started(world.node, 2);
  world.Died(world.node, 1);  // Late.
  CHECK(world.Lookup(world.id).state() == Info::ALIVE);
  world.Died(world.node, 2);
  CHECK(world.Starts(world.node).empty());  // The second quick death waits.
  world.Pass(200 * kMillisecond, {world.node});
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{3});
  world.Started(world.node, 3);
  CHECK(world.Lookup(world.id).restarts() == 2);
  world.Died(world.node, 3);
  CHECK(world.Lookup(world.id).state() == Info::DEAD);
  CHECK(Is(world.LookupName("name"), ErrorKind::kNotFound));
  world.Pass(kSecond, {world.node});
  CHECK(world.Starts(world.node).empty());
  CHECK(world.service().Stats().actor_restarts == 2);
  world.Restart();
  world.ReportNode(world.node);
  CHECK(world.Lookup(world.id).state() == Info::DEAD);
}

SCENARIO("a poison actor restarts ever more slowly, and at most every ten seconds") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  uint32_t incarnation = 0;
  std::vector<Nanos> waits;
  for (int i = 0; i < 12; ++i) {
    Nanos waited = 0;
    for (auto starts = world.Starts(world.node);; starts = world.Starts(world.node)) {
      if (!starts.empty()) {
        incarnation = starts.back();
        break;
      }
      world.Pass(100 * kMillisecond, {world.node});
      waited += 100 * kMillisecond;
    }
    waits.push_back(waited);
    world.Died(world.node, incarnation);
  }
  CHECK(incarnation == 12);
  CHECK(std::is_sorted(waits.begin(), waits.end()));
  CHECK(waits[1] == 0);
  CHECK(waits.back() == 10 * kSecond);
}

SCENARIO("an actor that does not start on one node is started on another, and all hear why") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.RegisterWithCpu();
  const auto messages = [&] {
    proto::GcsRequest request;
    request.mutable_list_events()->set_limit(100);
    proto::StateFilter* filter = request.mutable_list_events()->add_filters();
    filter->set_key("kind");
    filter->set_value("ACTOR_DIED");
    std::vector<std::string> all;
    const proto::GcsReply reply = world.Ask(world.driver, request);
    for (const auto& event : reply.events().events()) all.push_back(event.message());
    return all;
  };
  NodeNumber last = 0;
  for (uint32_t incarnation = 1; incarnation <= 9; ++incarnation) {
    const NodeNumber asked = world.FailStart(incarnation, {world.node, other});
    CHECK(asked != last);
    last = asked;
  }
  CHECK(
      world.Lookup(world.id).words() ==
      "its next start, 10000 ms after the last, as it ended 9 times in a row within 10 s: it uses "
      "Sheaf 0.0.9, the node 0.1.0");
  const std::vector<std::string> told = messages();  // Of the first, second, fourth and eighth.
  REQUIRE(told.size() == 4);
  CHECK_THAT(told[3], Catch::Contains("8 times in a row; again in 6400 ms: it uses Sheaf 0.0.9"));
}

SCENARIO("an actor is tried on all nodes, however many cannot start it") {
  ActorWorld world;
  std::vector<NodeNumber> nodes{world.node};
  for (int i = 0; i < 3; ++i) nodes.push_back(world.AddNode());
  world.RegisterWithCpu();
  std::set<NodeNumber> tried;
  for (uint32_t incarnation = 1; incarnation <= 8; ++incarnation) {
    tried.insert(world.FailStart(incarnation, nodes));
  }
  CHECK(tried.size() == nodes.size());
}

SCENARIO("an incarnation is durable before a raylet hears of it") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Started(world.node, 1);
  world.Starts(world.node);
  world.storage().hold = true;
  world.Died(world.node, 1);
  CHECK(world.Starts(world.node).empty());
  WHEN("the disk has it") {
    world.storage().hold = false;
    world.storage().ReleaseAll();
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  }
  WHEN("the GCS dies first, the next one grants it") {
    world.Restart();
    proto::NodeReport report;
    *report.add_actors() = [&] {
      auto died = world.Report(1);
      died.mutable_died();
      return died;
    }();
    world.ReportNode(world.node, report);
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  }
  WHEN("the disk is full for a while") {
    world.storage().full = true;
    world.storage().hold = false;
    world.storage().ReleaseAll();
    CHECK(world.Starts(world.node).empty());
    world.storage().full = false;
    world.Pass(100 * kMillisecond, {world.node});
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  }
}

SCENARIO("an actor moves when its node dies; a start that was under way costs no restart") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  const bool was_alive = GENERATE(true, false);
  INFO("was alive: " << was_alive);
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/1));
  if (was_alive) world.Started(world.node, 1);
  world.Pass(6 * kSecond, {other});
  const std::vector<uint32_t> starts = world.Starts(other);
  REQUIRE_FALSE(starts.empty());
  CHECK(starts.front() == 2);
  CHECK(starts.back() == 2);
  proto::GcsRequest lookup;
  lookup.mutable_lookup_actor()->set_actor_id(world.id.Binary());
  const Info info = world.Ask({other, 1}, lookup).actor();
  CHECK(info.state() == (was_alive ? Info::RESTARTING : Info::PENDING));
  CHECK(info.restarts() == (was_alive ? 1 : 0));
}

SCENARIO("a start that a draining node gives back costs no restart") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/0));
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{1});
  proto::GcsRequest drain;
  drain.mutable_unregister_node()->set_drain_only(true);
  world.Ask(RayletOf(world.node), drain);
  auto report = world.Report(1);
  report.mutable_died()->set_cause(proto::Death::NODE_DIED);
  world.SendReport(world.node, report);
  CHECK(world.Starts(world.node).empty());
  CHECK(world.Starts(other) == std::vector<uint32_t>{2});
  CHECK(world.Lookup(world.id).state() == Info::PENDING);
  CHECK(world.Lookup(world.id).restarts() == 0);
}

SCENARIO("an incarnation whose end waits for a full disk is not ordered again") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/0));
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{1});
  world.storage().full = true;
  auto report = world.Report(1);
  report.mutable_died()->set_cause(proto::Death::NODE_DIED);  // The node takes no work.
  world.SendReport(world.node, report);
  world.Pass(5 * kSecond, {world.node});
  CHECK(world.Starts(world.node).empty());
  world.storage().full = false;
  world.Pass(500 * kMillisecond, {world.node});
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  CHECK(world.Lookup(world.id).restarts() == 0);
}

SCENARIO("a stale incarnation that turns up is ordered to end") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Started(world.node, 1);
  world.Died(world.node, 1);
  world.Starts(world.node);
  world.Started(world.node, 1, /*process=*/8);
  CHECK(world.Lookup(world.id).state() == Info::RESTARTING);
  world.Starts(world.node);
  CHECK(world.kills == std::vector<uint32_t>{1});
}

SCENARIO(
    "after a restart the GCS replaces only what nobody reports, and only when all have reported") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Started(world.node, 1);
  world.Restart();
  CHECK(world.service().recovering());
  CHECK(world.TakeEvents(RayletOf(world.node)).at(0).restarted().term() == 2);
  proto::NodeReport report;
  auto started = world.Report(1);
  started.mutable_started()->set_process(ProcessId{world.node, 9}.packed());
  WHEN("its node reports it") {
    *report.add_actors() = started;
    world.ReportNode(world.node, report);
    const uint64_t question = world.Send({other, 1}, [&] {
      proto::GcsRequest lookup;
      lookup.mutable_lookup_actor()->set_actor_id(world.id.Binary());
      return lookup;
    }());
    CHECK(world.RepliesTo({other, 1}, question).empty());
    world.ReportNode(other);
    CHECK_FALSE(world.service().recovering());
    REQUIRE(world.RepliesTo({other, 1}, question).size() == 1);
    CHECK(world.RepliesTo({other, 1}, question)[0].actor().incarnation() == 1);
    CHECK(world.Lookup(world.id).state() == Info::ALIVE);
    CHECK(world.Starts(world.node).empty());
  }
  WHEN("its node reports a later incarnation than the disk, which came back from a backup, knows") {
    auto later = world.Report(3);
    later.mutable_started()->set_process(ProcessId{world.node, 12}.packed());
    *report.add_actors() = later;
    world.ReportNode(world.node, report);
    world.ReportNode(other);
    CHECK_FALSE(world.service().recovering());
    CHECK(world.Starts(world.node).empty());
    CHECK(world.kills.empty());
    const Info now = world.Lookup(world.id);
    CHECK(now.state() == Info::ALIVE);
    CHECK(now.incarnation() == 3);
    CHECK(now.process() == ProcessId{world.node, 12}.packed());
    world.Died(world.node, 3);
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{4});
  }
  WHEN("a node reports that a later incarnation than the disk knows has ended there") {
    auto later = world.Report(3);
    later.mutable_died()->set_cause(proto::Death::SIGNALLED);
    const bool here = GENERATE(true, false);
    proto::NodeReport others;
    *(here ? report : others).add_actors() = later;
    world.ReportNode(world.node, report);
    world.ReportNode(other, others);
    CHECK_FALSE(world.service().recovering());
    std::vector<uint32_t> starts = world.Starts(world.node);
    const std::vector<uint32_t> elsewhere = world.Starts(other);
    starts.insert(starts.end(), elsewhere.begin(), elsewhere.end());
    CHECK(starts == std::vector<uint32_t>{4});
  }
  WHEN("its node reports, but does not have it") {
    world.ReportNode(world.node, report);
    world.ReportNode(other);
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  }
  WHEN("its node never reports and dies") {
    world.ReportNode(other);
    world.Pass(4500 * kMillisecond, {other});
    CHECK(world.service().recovering());
    CHECK(world.Starts(other).empty());
    world.Pass(kSecond, {other});
    CHECK_FALSE(world.service().recovering());
    CHECK(world.Starts(other) == std::vector<uint32_t>{2});
  }
  WHEN("a node sends heartbeats, but never reports") {
    world.ReportNode(other);
    world.Pass(11 * kSecond, {world.node, other});
    CHECK_FALSE(world.service().recovering());
    CHECK(world.Starts(world.node).front() == 2);
    CHECK(world.kills.front() == 1);  // Until it says that it is gone.
  }
}

SCENARIO("an actor goes on behind a later incarnation that the database, from a backup, lacks") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/0));
  REQUIRE(world.Starts(world.node) == std::vector<uint32_t>{1});
  WHEN("the node that is to start it says so, which has not begun it") {
    world.Died(world.node, 7);
    const bool is_here = world.Starts(world.node) == std::vector<uint32_t>{8};
    CHECK(world.Starts(other) == (is_here ? std::vector<uint32_t>{} : std::vector<uint32_t>{8}));
    CHECK(world.Lookup(world.id).restarts() == 0);
    world.Died(world.node, 7);  // A repeat.
    CHECK(world.Lookup(world.id).incarnation() == 8);
    world.Started(is_here ? world.node : other, 8);
    CHECK(world.Lookup(world.id).state() == Info::ALIVE);
  }
  WHEN("another node says so") {
    world.Died(other, 7);
    THEN("the node that may have begun the old one ends it, and then begins the new one") {
      CHECK(world.Starts(world.node) == std::vector<uint32_t>{8});
      CHECK(world.kills == std::vector<uint32_t>{1});
      world.Pass(2 * kSecond, {world.node, other});
      CHECK(world.Starts(other).empty());
    }
  }
  WHEN("it lives, and another node says so") {
    world.Started(world.node, 1);
    world.Died(other, 7);
    THEN("it goes on") {
      CHECK(world.Lookup(world.id).incarnation() == 1);
      CHECK(world.Lookup(world.id).state() == Info::ALIVE);
      CHECK(world.Starts(world.node).empty());
      CHECK(world.kills.empty());
    }
  }
}

SCENARIO("an actor that started while the GCS was away is not ordered from another node") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Starts(world.node);
  world.Restart();
  proto::NodeReport report;
  *report.add_actors() = world.Report(1);
  report.mutable_actors(0)->mutable_started()->set_process(ProcessId{other, 9}.packed());
  world.ReportNode(world.node);
  world.storage().hold = true;
  world.ReportNode(other, report);
  CHECK_FALSE(world.service().recovering());
  CHECK(world.Starts(world.node).empty());
  CHECK(world.Starts(other).empty());
  world.storage().hold = false;
  world.storage().ReleaseAll();
  CHECK(world.Lookup(world.id).state() == Info::ALIVE);
}

SCENARIO("an incarnation that nobody reported is not ordered while its end is written down") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Restart();
  world.storage().hold = true;
  world.ReportNode(world.node);
  CHECK_FALSE(world.service().recovering());
  CHECK(world.Starts(world.node).empty());
  world.storage().hold = false;
  world.storage().ReleaseAll();
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
}

SCENARIO("a raylet whose report came too late is told to end that incarnation until it is gone") {
  ActorWorld world;
  const NodeNumber other = world.AddNode();
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/-1));
  world.Restart();
  world.ReportNode(world.node);
  world.storage().hold = true;
  world.ReportNode(other);  // Nobody has it: incarnation 1 is lost,
  world.Started(other, 1);  // but that is not on disk when one of them does.
  world.storage().hold = false;
  world.storage().ReleaseAll();
  CHECK(world.Lookup(world.id).incarnation() == 2);
  world.kills.clear();
  world.Pass(1500 * kMillisecond, {world.node, other});  // The word is lost, and said again.
  world.Starts(other);
  CHECK_FALSE(world.kills.empty());
  CHECK(std::ranges::all_of(world.kills, [](uint32_t killed) { return killed == 1; }));
  world.Died(other, 1);
  world.kills.clear();
  world.Pass(3 * kSecond, {world.node, other});
  world.Starts(other);
  CHECK(world.kills.empty());
  CHECK(world.Lookup(world.id).incarnation() == 2);
}

SCENARIO("a raylet is told to end an actor until it says that the actor is gone") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("one", true));
  CHECK(world.Starts(world.node) == std::vector<uint32_t>{1});
  world.Started(world.node, 1);
  proto::GcsRequest end;
  end.mutable_end_actor()->set_actor_id(world.id.Binary());
  world.Ask(world.driver, end);
  world.Starts(world.node);
  CHECK(world.kills == std::vector<uint32_t>{1});
  world.Pass(2 * kSecond, {world.node});  // That word was lost.
  world.Starts(world.node);
  CHECK(world.kills.size() >= 2);
  world.Died(world.node, 1);
  world.kills.clear();
  world.Pass(5 * kSecond, {world.node});
  world.Starts(world.node);
  CHECK(world.kills.empty());
}

}  // namespace actor_lifecycle_test
}  // namespace sheaf
