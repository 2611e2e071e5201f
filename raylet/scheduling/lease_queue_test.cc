// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/lease_queue.h"

#include <catch2/catch.hpp>
#include <set>

#include "raylet/scheduling/lease_queue_for_test.h"

namespace sheaf {

using namespace lease_queue_test;
SCENARIO(
    "a demand is absolute: it is granted as far as there is room, and a repeat changes nothing") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 3), node.now);
  CHECK(node.Count(Kind::kGrant) == 2);
  CHECK(node.ledger.available().empty());
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 3), node.now);
  CHECK(node.Take().empty());
  REQUIRE(node.queue.FindPending(kA, 1).has_value());
  CHECK(node.queue.FindPending(kA, 1)->missing == 1);
  WHEN("one is returned while more are wanted") {
    node.ReturnOne(kA);
    THEN("the third is granted") { CHECK(node.Count(Kind::kGrant) == 1); }
  }
  WHEN("fewer are wanted before one is returned") {
    node.queue.OnDemand(kA, Wants(1, "CPU:1", 1), node.now);
    CHECK_FALSE(node.queue.FindPending(kA, 1).has_value());
    node.ReturnOne(kA);
    THEN("nothing more is granted") {
      CHECK(node.Take().empty());
      CHECK(node.ledger.available() == Parsed("CPU:1"));
    }
  }
  WHEN("a lease is returned twice") {
    const LeaseNumber lease = node.held[kA].front();
    node.ReturnOne(kA);
    THEN("the second time counts for nothing") {
      CHECK_FALSE(node.queue.OnReturn(lease, node.now));
      CHECK_FALSE(node.queue.OnReturn(999, node.now));
    }
  }
}

SCENARIO("what a peer sends is checked") {
  Node node("CPU:2");
  proto::LeaseDemand bad = Wants(1, "CPU:1", 1);
  (*bad.mutable_spec()->mutable_resources()->mutable_amounts())["CPU"] = -5;
  proto::LeaseDemand no_spec;
  no_spec.set_key(2);
  no_spec.set_wanted(1);
  for (const proto::LeaseDemand& demand : {bad, no_spec}) {
    node.queue.OnDemand(kA, demand, node.now);
    const auto actions = node.Take();
    REQUIRE(actions.size() == 1);
    CHECK(actions[0].kind == Kind::kRefuse);
    CHECK(actions[0].error == ErrorKind::kInvalidArgument);
  }
}

SCENARIO("owners that ask for the same take turns") {
  Node node("CPU:1");
  for (const ProcessId owner : {kA, kB, kC})
    node.queue.OnDemand(owner, Wants(1, "CPU:1", 5), node.now);
  std::vector<ProcessId> turns;
  for (int i = 0; i < 9; ++i) {
    for (const LeaseAction& action : node.Take()) {
      if (action.kind == Kind::kGrant) turns.push_back(action.demand.owner);
    }
    node.ReturnOne(turns.back());
  }
  CHECK(turns == std::vector<ProcessId>{kA, kB, kC, kA, kB, kC, kA, kB, kC});
}

SCENARIO("owners share fairly: who has more gives back when others wait") {
  Node node("CPU:4");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 100), node.now);
  CHECK(node.Count(Kind::kGrant) == 4);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 100), node.now);
  THEN("two of four are asked back at once, each once") {
    CHECK(node.Count(Kind::kRevoke) == 2);
    node.queue.OnTick(node.now + kMillisecond);
    CHECK(node.Take().empty());
    node.ReturnOne(kA);
    node.ReturnOne(kA);
    const auto actions = node.Take();
    CHECK(std::count_if(actions.begin(), actions.end(), [](const LeaseAction& action) {
            return action.kind == Kind::kGrant && action.demand.owner == kB;
          }) == 2);
    node.now += kSecond;
    node.queue.OnTick(node.now);
    CHECK(node.Take().empty());  // Two each: nobody is asked.
  }
}

SCENARIO("one core and two owners with endless work: each has it for a quantum") {
  Node node("CPU:1");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 10), node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 10), node.now);
  CHECK(node.Count(Kind::kRevoke) == 0);
  CHECK(node.queue.NextTick() == node.now + node.queue.options().quantum);
  node.now = node.queue.NextTick();
  node.queue.OnTick(node.now);
  CHECK(node.Count(Kind::kRevoke) == 1);
  node.ReturnOne(kA);
  CHECK(node.Count(Kind::kGrant) == 1);
  CHECK(node.held[kB].size() == 1);
}

SCENARIO("a lease of an owner without backlog is asked back first; actors are never asked") {
  Node node("CPU:3");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 1), node.now);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 1, /*backlog=*/0), node.now);
  proto::LeaseDemand actor = Wants(2, "CPU:2", 1);
  actor.mutable_spec()->set_actor(true);
  node.queue.OnDemand(kA, actor, node.now);
  CHECK(node.Count(Kind::kGrant) == 2);
  const LeaseNumber idle = node.held[kA].front();
  node.now += kSecond;
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 3), node.now);
  const auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].kind == Kind::kRevoke);
  CHECK(actions[0].lease == idle);
  WHEN("the owner keeps it for long") {
    node.now += kSecond;
    node.queue.OnTick(node.now);
    THEN("nothing is left to ask for") { CHECK(node.Take().empty()); }
  }
}

SCENARIO("a large request is overtaken a bounded number of times, then room is kept for it") {
  LeaseQueueOptions options;
  options.overtakes_max = 8;
  options.quantum = kSecond;
  Node node("CPU:4", options);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 100), node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:4", 1), node.now);
  node.Take();
  int small = 0;
  while (node.held[kB].empty() && small < 100) {
    node.ReturnOne(kA);
    node.Take();
    ++small;
  }
  CHECK(small <= 8 + 1 + 4);  // Overtakes, its turn, and the four that run.
  CHECK(node.held[kB].size() == 1);
  CHECK(node.held[kA].empty());
  node.ReturnOne(kB);
  node.Take();
  CHECK(node.held[kA].size() == 4);
}

SCENARIO("time alone also ends the patience of a large request, and leases are asked back for it") {
  Node node("CPU:4");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 100), node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:4", 1), node.now);
  CHECK(node.Count(Kind::kRevoke) == 0);
  node.now += node.queue.options().reserve_after;
  node.queue.OnTick(node.now);
  CHECK(node.Count(Kind::kRevoke) == 4);
  CHECK(node.queue.FindPending(kB, 1)->reserving);
  for (int i = 0; i < 4; ++i) node.ReturnOne(kA);
  node.Take();
  CHECK(node.held[kB].size() == 1);
}

SCENARIO("no room is kept for what an actor or a blocked worker holds") {
  Node node("CPU:2");
  proto::LeaseDemand actor = Wants(1, "CPU:1", 1);
  actor.mutable_spec()->set_actor(true);
  node.queue.OnDemand(kA, actor, node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:2", 1), node.now);
  node.now += 10 * kSecond;
  node.queue.OnTick(node.now);
  node.Take();
  node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);
  CHECK(node.Count(Kind::kGrant) == 1);
}

SCENARIO("room kept free is given up at once when what it waits for blocks") {
  Node node("CPU:1,GPU:1");
  node.queue.OnDemand(kA, Wants(1, "GPU:1", 1), node.now);
  node.Take();
  node.queue.OnDemand(kB, Wants(1, "CPU:1,GPU:1", 1), node.now);
  node.now += node.queue.options().reserve_after;
  node.queue.OnTick(node.now);
  node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);  // The child that A's task waits for.
  node.Take();
  CHECK(node.held[kC].empty());
  node.queue.OnBlocked(node.held[kA].front(), node.now);
  node.Take();
  CHECK(node.held[kC].size() == 1);
}

SCENARIO("a reservation that never ends in a grant runs out") {
  LeaseQueueOptions options;
  Node node("CPU:2", options);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 1), node.now);  // Runs for ever.
  node.queue.OnDemand(kB, Wants(1, "CPU:2", 1), node.now);
  node.now += options.reserve_after;
  node.queue.OnTick(node.now);
  node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);
  CHECK(node.Count(Kind::kGrant) == 1);  // Only A's.
  CHECK(node.queue.FindPending(kC, 1)->withheld);
  node.now += options.reservation_limit;
  node.queue.OnTick(node.now);
  CHECK(node.Count(Kind::kGrant) == 1);
}

SCENARIO("a blocked worker lends its CPUs after a while, and goes on at once") {
  Node node("CPU:1");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 1), node.now);
  node.Take();
  const LeaseNumber parent = node.held[kA].front();
  node.queue.OnBlocked(parent, node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 1), node.now);
  node.Take();
  CHECK(node.held[kB].empty());
  CHECK(node.queue.NextTick() <= node.now + node.queue.options().lend_after);
  WHEN("it is blocked for long enough") {
    node.now += node.queue.options().lend_after;
    node.queue.OnTick(node.now);
    CHECK(node.Count(Kind::kGrant) == 1);
    CHECK(node.queue.lenders() == 1);
    node.queue.OnUnblocked(parent, node.now);
    THEN("both have a CPU, and only the last one back makes room") {
      CHECK(node.ledger.available().cpu() == -kUnit);
      CHECK(node.queue.lenders() == 0);
      node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);
      node.queue.OnDemand(kB, Wants(1, "CPU:1", 0), node.now);
      node.ReturnOne(kB);
      CHECK(node.Count(Kind::kGrant) == 0);
      node.queue.OnDemand(kA, Wants(1, "CPU:1", 0), node.now);
      node.ReturnOne(kA);
      CHECK(node.Count(Kind::kGrant) == 1);
    }
  }
  WHEN("it goes on before that") {
    node.queue.OnUnblocked(parent, node.now + kMillisecond);
    node.queue.OnTick(node.now + node.queue.options().lend_after);
    THEN("nothing was lent") { CHECK(node.Count(Kind::kGrant) == 0); }
  }
}

SCENARIO("of more workers that go on than there are CPUs some leases end with their tasks") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 9), node.now);  // One owner with work without end.
  node.Take();
  for (int round = 0; round < 3; ++round) {
    for (const LeaseNumber lease : std::vector(node.held[kA]))
      node.queue.OnBlocked(lease, node.now);
    node.now += node.queue.options().lend_after;
    node.queue.OnTick(node.now);
    node.Take();
  }
  REQUIRE(node.held[kA].size() == 8);
  for (const LeaseNumber lease : std::vector(node.held[kA]))
    node.queue.OnUnblocked(lease, node.now);
  REQUIRE(node.ledger.available().cpu() == -6 * kUnit);
  CHECK(node.Count(Kind::kRevoke) == 0);  // Most such moments are over at once.
  node.now = node.queue.NextTick();
  node.queue.OnTick(node.now);
  std::set<LeaseNumber> revoked;
  for (const LeaseAction& action : node.Take())
    if (action.kind == Kind::kRevoke) revoked.insert(action.lease);
  CHECK(revoked.size() == 6);
  for (const LeaseNumber lease : revoked) {
    std::erase(node.held[kA], lease);
    node.queue.OnReturn(lease, node.now);
  }
  CHECK(node.Count(Kind::kGrant) == 0);
  CHECK(node.ledger.available().cpu() == 0);
  node.ReturnOne(kA);
  CHECK(node.Count(Kind::kGrant) == 1);
}

SCENARIO("the CPUs of calls that wait for admission are lent to demands that have no such call") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 8), node.now);
  node.Take();
  const std::vector<LeaseNumber> both = node.held[kA];
  REQUIRE(both.size() == 2);
  for (const LeaseNumber lease : both) node.queue.OnBlocked(lease, node.now, true);
  node.PassTime();
  CHECK(node.queue.lenders() == 2);
  CHECK(node.ledger.available().cpu() == 2 * kUnit);
  CHECK(node.Count(Kind::kGrant) == 0);  // Its next call would wait as well.
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 1), node.now);
  node.queue.OnDemand(kA, Wants(2, "CPU:1", 1), node.now);
  CHECK(node.Count(Kind::kGrant) == 2);
  const auto end_other = [&](ProcessId owner) {  // It wants no more.
    node.queue.OnDemand(owner, Wants(1, "CPU:1", 0, 0), node.now);
    node.ReturnOne(owner);
  };
  WHEN("those end") {
    end_other(kB);
    CHECK(node.Count(Kind::kGrant) == 0);
    THEN("others get them again") {
      node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);
      CHECK(node.Count(Kind::kGrant) == 1);
    }
  }
  WHEN("one of the calls that waited goes on, and ends") {
    end_other(kB);
    node.queue.OnUnblocked(both[0], node.now);
    CHECK(node.ledger.available().cpu() == 0);
    CHECK(node.Count(Kind::kGrant) == 0);
    REQUIRE(node.queue.OnReturn(both[0], node.now));
    CHECK(node.Count(Kind::kGrant) == 0);  // What the other one lends is in use.
    THEN("the next call gets its CPU") {
      node.queue.OnReturn(node.held[kA].back(), node.now);
      CHECK(node.Count(Kind::kGrant) == 1);
    }
  }
  WHEN("all of them go on") {
    for (const LeaseNumber lease : both) node.queue.OnUnblocked(lease, node.now);
    CHECK(node.queue.lenders() == 0);
    CHECK(node.ledger.available().cpu() == -2 * kUnit);
    THEN("nothing is withheld any more") {
      for (const LeaseNumber lease : both) node.queue.OnReturn(lease, node.now);
      CHECK(node.Count(Kind::kGrant) == 0);
      end_other(kB);
      CHECK(node.Count(Kind::kGrant) == 1);
    }
  }
}

SCENARIO("a demand that is lent no CPU because its calls wait for admission is in nobody's way") {
  Node node("CPU:2");
  node.queue.OnDemand(kC, Wants(1, "CPU:1", 1), node.now);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 8), node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 8), node.now);
  node.Take();
  REQUIRE(node.held[kA].size() == 1);
  node.queue.OnBlocked(node.held[kA].front(), node.now, true);
  node.PassTime();
  node.Take();
  CHECK(node.held[kB].size() == 1);
  node.queue.OnDemand(kC, Wants(1, "CPU:1", 0, 0), node.now);
  node.ReturnOne(kC);
  node.Take();
  CHECK(node.held[kA].size() == 1);
  CHECK(node.held[kB].size() == 2);
}

SCENARIO("the number of workers that lend is capped") {
  LeaseQueueOptions options;
  options.lenders_max = 1;
  Node node("CPU:2", options);
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 2), node.now);
  node.Take();
  const std::vector<LeaseNumber> both = node.held[kA];
  node.queue.OnBlocked(both[0], node.now);
  node.queue.OnBlocked(both[1], node.now);
  node.now += kSecond;
  node.queue.OnTick(node.now);
  CHECK(node.queue.lenders() == 1);
  CHECK(node.queue.NextTick() == kForever);
  node.queue.OnUnblocked(both[0], node.now);
  CHECK(node.queue.lenders() == 1);  // The other one's turn.
  CHECK(node.ledger.available().cpu() == kUnit);
}

SCENARIO("an owner that dies leaves nothing behind once its leases are back") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 9), node.now);
  node.queue.OnDemand(kA, ActorDemand(2, "CPU:1"), node.now);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 1), node.now);
  node.Take();
  node.queue.OnOwnerGone(kA, node.now);
  CHECK(node.Count(Kind::kEnd) == 2);
  CHECK(node.held[kB].empty());
  node.ReturnOne(kA);
  node.ReturnOne(kA);
  CHECK(node.Count(Kind::kGrant) == 1);
  CHECK(node.held[kB].size() == 1);
  CHECK(node.queue.AllPending().empty());
  node.queue.OnOwnerGone(kA, node.now);
  CHECK(node.Take().empty());
}

SCENARIO("an actor needs a CPU to be placed and none to run, and its demand ends with it") {
  Node node("CPU:1");
  for (uint64_t key = 1; key <= 50; ++key)
    node.queue.OnDemand(kA, ActorDemand(key, "CPU:1"), node.now);
  CHECK(node.Count(Kind::kGrant) == 50);
  CHECK(node.ledger.available() == Parsed("CPU:1"));
  node.ReturnOne(kA);
  CHECK(node.Take().empty());
  node.queue.OnDemand(kA, ActorDemand(1, "CPU:1"), node.now);  // A restart.
  CHECK(node.Count(Kind::kGrant) == 1);
}

SCENARIO("leases in a placement group use its bundles, and end with it") {
  Node node("CPU:4");
  node.queue.OnDemand(kA, InGroup(Wants(1, "CPU:1", 3)), node.now);
  CHECK(node.Take().empty());  // Not created yet.
  for (int32_t bundle : {0, 1}) {
    REQUIRE(node.ledger.Prepare({kGroup, bundle}, Parsed("CPU:1"), {1, 0}).ok());
    REQUIRE(node.ledger.Commit({kGroup, bundle}).ok());
  }
  node.view.groups[kGroup] = {GroupPlacement::State::kCreated, {1, 1}};
  node.queue.OnGroupChanged(kGroup, node.now);
  CHECK(node.Count(Kind::kGrant) == 2);
  node.queue.OnDemand(kB, Wants(1, "CPU:1", 9), node.now);
  CHECK(node.Count(Kind::kGrant) == 2);  // The node's own.
  WHEN("a lease asks for what no bundle ever holds, or for a bundle that is not there") {
    node.queue.OnDemand(kA, InGroup(Wants(2, "CPU:2", 1)), node.now);
    node.queue.OnDemand(kA, InGroup(Wants(3, "CPU:1", 1), 2), node.now);
    THEN("it is refused") {
      const auto actions = node.Take();
      REQUIRE(actions.size() == 2);
      CHECK(actions[0].error == ErrorKind::kTaskUnschedulable);
      CHECK(actions[1].message == "the placement group has 2 bundles, there is no bundle 2");
    }
  }
  WHEN("the group is removed") {
    node.ledger.ReturnBundle({kGroup, 0});
    node.ledger.ReturnBundle({kGroup, 1});
    node.view.groups[kGroup].state = GroupPlacement::State::kRemoved;
    node.queue.OnGroupChanged(kGroup, node.now);
    const auto actions = node.Take();
    THEN("its leases end, its demands are refused, and its CPUs serve others as they come back") {
      REQUIRE(actions.size() == 3);
      CHECK(actions[0].kind == Kind::kEnd);
      CHECK(actions[0].error == ErrorKind::kGroupRemoved);
      CHECK(actions[2].kind == Kind::kRefuse);
      CHECK(actions[2].error == ErrorKind::kGroupRemoved);
      node.ReturnOne(kA);
      CHECK(node.Count(Kind::kGrant) == 1);
      node.ReturnOne(kA);
      CHECK(node.Count(Kind::kGrant) == 1);
    }
  }
  WHEN("its bundles go, to be placed anew") {
    node.ledger.ReturnBundle({kGroup, 0});
    node.ledger.ReturnBundle({kGroup, 1});
    node.view.groups[kGroup] = {};
    node.queue.OnGroupChanged(kGroup, node.now);
    const auto actions = node.Take();
    THEN("its leases end, and its demands wait") {
      REQUIRE(actions.size() == 2);
      CHECK(actions[0].kind == Kind::kEnd);
      CHECK(actions[1].kind == Kind::kEnd);
    }
  }
}

SCENARIO("leases make room for a placement group that waits") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 100), node.now);
  node.Take();
  node.queue.SetGroupWaiting(Parsed("CPU:2"), node.now);
  node.now += kSecond;
  node.queue.OnTick(node.now);
  CHECK(node.Count(Kind::kRevoke) == 2);
  node.ReturnOne(kA);
  node.ReturnOne(kA);
  CHECK(node.Count(Kind::kGrant) == 0);  // Kept for the group.
  CHECK(node.ledger.available() == Parsed("CPU:2"));
  REQUIRE(node.ledger.Prepare({kGroup, 0}, Parsed("CPU:2"), {1, 0}).ok());
  node.queue.SetGroupWaiting(std::nullopt, node.now);
  CHECK(node.Count(Kind::kGrant) == 0);
}

SCENARIO("a lease whose worker cannot be had refuses its demand") {
  Node node("CPU:1");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 3), node.now);
  node.Take();
  node.queue.OnGrantFailed(node.held[kA].front(), ErrorKind::kEnvironmentFailed, "no numpy",
                           node.now);
  const auto actions = node.Take();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].error == ErrorKind::kEnvironmentFailed);
  CHECK(node.ledger.available() == Parsed("CPU:1"));
}

SCENARIO(
    "a demand bears the name of what its owner has for it now, its leases that of their grant") {
  Node node("CPU:2");
  node.queue.OnDemand(kA, Wants(1, "CPU:1", 2), node.now);
  proto::LeaseDemand renamed = Wants(1, "CPU:7", 5);  // Only the name counts.
  renamed.mutable_spec()->set_name("g");
  node.queue.OnDemand(kA, renamed, node.now);
  const auto pending = node.queue.AllPending();
  REQUIRE(pending.size() == 1);
  CHECK(pending[0].missing == 3);
  CHECK(pending[0].spec->name == "g");
  CHECK(pending[0].spec->resources == Parsed("CPU:1"));
  REQUIRE(node.queue.Leases().size() == 2);
  CHECK(node.queue.Leases()[0]->spec->name == "f");
  node.queue.OnReturn(1, node.now);
  CHECK(node.queue.Leases().back()->spec->name == "g");
}

}  // namespace sheaf
