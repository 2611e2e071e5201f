// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Names, listings, and ends that are asked for.
#include <catch2/catch.hpp>

#include "gcs/actors/actor_world_for_test.h"

namespace sheaf {
namespace actor_service_test {

using Info = proto::ActorInfo;

SCENARIO("a name is taken until its actor ends, and found by all") {
  ActorWorld world;
  CHECK(Is(world.Ask(world.driver, world.Registration("name", /*detached=*/false)),
           ErrorKind::kNone));
  CHECK(world.LookupName("name").actor().handle() == "methods");
  CHECK(Is(world.LookupName("other"), ErrorKind::kNotFound));
  const ActorId other = ActorId::Make({world.node, 2}, 1);
  auto second = world.Registration("name", /*detached=*/false);
  second.mutable_register_actor()->set_actor_id(other.Binary());
  WHEN("another wants it") {
    const proto::GcsReply reply = world.Ask({world.node, 2}, second);
    CHECK(Is(reply, ErrorKind::kActorNameTaken));
    CHECK(reply.actor().actor_id() == world.id.Binary());
    second.mutable_register_actor()->set_get_if_exists(true);
    CHECK(world.Ask({world.node, 2}, second).actor().actor_id() == world.id.Binary());
  }
  WHEN("another wants it in another name space") {
    second.mutable_register_actor()->set_name_space("elsewhere");
    CHECK(world.Ask({world.node, 2}, second).actor().actor_id() == other.Binary());
  }
  WHEN("two ask at once") {
    world.storage().hold = true;
    second.mutable_register_actor()->set_name("new");
    auto third = second;
    third.mutable_register_actor()->set_actor_id(ActorId::Make({world.node, 3}, 1).Binary());
    const uint64_t a = world.Send({world.node, 2}, second);
    const uint64_t b = world.Send({world.node, 3}, third);
    CHECK(world.RepliesTo({world.node, 2}, a).empty());
    CHECK(world.RepliesTo({world.node, 3}, b).empty());
    world.storage().ReleaseAll();
    CHECK(Is(world.RepliesTo({world.node, 2}, a)[0], ErrorKind::kNone));
    CHECK(Is(world.RepliesTo({world.node, 3}, b)[0], ErrorKind::kActorNameTaken));
  }
  WHEN("one ends while its registration is on its way to the disk") {
    world.storage().hold = true;
    second.mutable_register_actor()->set_name("new");
    const uint64_t registered = world.Send({world.node, 2}, second);
    proto::GcsRequest end;
    end.mutable_end_actor()->set_actor_id(other.Binary());
    const uint64_t ended = world.Send({world.node, 2}, end);
    CHECK(world.RepliesTo({world.node, 2}, ended).empty());
    world.storage().ReleaseAll();
    CHECK(Is(world.RepliesTo({world.node, 2}, registered)[0], ErrorKind::kNone));
    CHECK(Is(world.RepliesTo({world.node, 2}, ended)[0], ErrorKind::kNone));
    CHECK(Is(world.LookupName("new"), ErrorKind::kNotFound));
  }
  WHEN("the GCS restarts") {
    world.Restart();
    proto::NodeReport report;
    report.add_processes(world.driver.packed());
    world.ReportNode(world.node, report);
    CHECK(world.LookupName("name").actor().actor_id() == world.id.Binary());
  }
  WHEN("its creator says that it ended") {
    proto::GcsRequest end;
    end.mutable_end_actor()->set_actor_id(world.id.Binary());
    CHECK(Is(world.Ask(world.driver, end), ErrorKind::kNone));
    CHECK(world.Ask({world.node, 2}, second).actor().actor_id() == other.Binary());
  }
  WHEN("its creator dies") {
    proto::GcsRequest gone;
    gone.mutable_process_gone()->set_process(world.driver.packed());
    world.Ask(RayletOf(world.node), gone);
    CHECK(Is(world.LookupName("name"), ErrorKind::kNotFound));
    world.Restart();
    world.ReportNode(world.node);
    CHECK(Is(world.LookupName("name"), ErrorKind::kNotFound));
  }
  WHEN("its creator died while no GCS ran") {
    world.Restart();
    world.ReportNode(world.node);
    CHECK(Is(world.LookupName("name"), ErrorKind::kNotFound));
  }
}

SCENARIO("a registration that makes no sense is refused") {
  ActorWorld world;
  auto request = world.Registration("name", /*detached=*/false);
  proto::RegisterActor* actor = request.mutable_register_actor();
  WHEN("the id is short") { actor->set_actor_id("short"); }
  WHEN("an attached actor has no name") { actor->clear_name(); }
  WHEN("another process made the id") {
    actor->set_actor_id(ActorId::Make({world.node, 2}, 1).Binary());
  }
  WHEN("a detached one has no job") {
    actor->set_detached(true);
    actor->set_job(77);
  }
  CHECK(Is(world.Ask(world.driver, request), ErrorKind::kInvalidArgument));
}

SCENARIO("a detached actor is killed on request, with or without a restart") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/true, /*max_restarts=*/1));
  world.Started(world.node, 1);
  world.Starts(world.node);
  proto::GcsRequest end;
  end.mutable_end_actor()->set_actor_id(world.id.Binary());
  WHEN("it may restart") {
    end.mutable_end_actor()->set_restart(true);
    CHECK(Is(world.Ask({world.node, 5}, end), ErrorKind::kNone));
    world.Starts(world.node);
    CHECK(world.kills == std::vector<uint32_t>{1});
    world.Died(world.node, 1);
    CHECK(world.Starts(world.node) == std::vector<uint32_t>{2});
  }
  WHEN("it may not") {
    CHECK(Is(world.Ask({world.node, 5}, end), ErrorKind::kNone));
    CHECK(world.Lookup(world.id).state() == Info::DEAD);
    CHECK(world.Lookup(world.id).death().cause() == proto::Death::KILLED);
    world.Starts(world.node);
    CHECK(world.kills == std::vector<uint32_t>{1});
    world.Died(world.node, 1);
    world.Pass(kSecond, {world.node});
    CHECK(world.Starts(world.node).empty());
  }
  WHEN("it will end by itself, and dies before") {
    end.mutable_end_actor()->set_leaves(true);
    CHECK(Is(world.Ask({world.node, 5}, end), ErrorKind::kNone));
    CHECK(world.Lookup(world.id).state() == Info::ALIVE);
    world.Starts(world.node);
    CHECK(world.kills.empty());
    world.Died(world.node, 1);
    THEN("that is its end") {
      CHECK(world.Lookup(world.id).state() == Info::DEAD);
      world.Pass(kSecond, {world.node});
      CHECK(world.Starts(world.node).empty());
    }
  }
  WHEN("nobody knows it") {
    end.mutable_end_actor()->set_actor_id(std::string(16, 'x'));
    CHECK(Is(world.Ask({world.node, 5}, end), ErrorKind::kNotFound));
  }
}

SCENARIO("creators' rows are listed while their creators live") {
  ActorWorld world;
  proto::GcsRequest rows;
  proto::ActorRow* row = rows.mutable_actor_rows()->add_rows();
  row->set_actor_id(ActorId::Make(world.driver, 5).ToHex());
  row->set_state("ALIVE");
  row->set_class_name("Counter");
  *rows.mutable_actor_rows()->add_rows() = [&] {
    proto::ActorRow forged = *row;
    forged.set_actor_id(ActorId::Make({world.node + 1, 1}, 5).ToHex());
    return forged;
  }();
  world.Ask(RayletOf(world.node), rows);
  world.Ask(world.driver, world.Registration("name", /*detached=*/true));
  proto::GcsRequest list;
  list.mutable_list_actors()->set_all_name_spaces(true);
  CHECK(world.Ask(world.driver, list).actors().actors_size() == 2);
  list.mutable_list_actors()->set_named_only(true);
  CHECK(world.Ask(world.driver, list).actors().actors_size() == 1);
  proto::GcsRequest gone;
  gone.mutable_process_gone()->set_process(world.driver.packed());
  world.Ask(RayletOf(world.node), gone);
  list.mutable_list_actors()->set_named_only(false);
  CHECK(world.Ask(world.driver, list).actors().actors_size() == 1);
}

SCENARIO(
    "a named actor is listed with its job and name space, and dead with why, whoever says it "
    "first") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/false));
  const auto report = [&](const std::string& state, const std::string& death) {
    proto::GcsRequest rows;
    proto::ActorRow& row = *rows.mutable_actor_rows()->add_rows();
    row.set_actor_id(world.id.ToHex());
    row.set_state(state);
    row.set_death(death);
    world.Ask(RayletOf(world.node), rows);
  };
  const auto listed = [&] {
    proto::GcsRequest list;
    list.mutable_list_actors()->set_all_name_spaces(true);
    const proto::ActorList actors = world.Ask(world.driver, list).actors();
    REQUIRE(actors.actors_size() == 1);
    return actors.actors(0);
  };
  report("ALIVE", "");
  CHECK(listed().state() == "ALIVE");
  CHECK(listed().name_space() == "ns");
  CHECK(listed().job() == world.job);
  proto::GcsRequest freed;  // Its name, by its creator.
  freed.mutable_end_actor()->set_actor_id(world.id.Binary());
  freed.mutable_end_actor()->mutable_death()->set_cause(proto::Death::LEFT);
  const bool freed_first = GENERATE(true, false);
  if (freed_first) world.Ask(world.driver, freed);
  report("DEAD", "its process exited with code 3");
  if (!freed_first) world.Ask(world.driver, freed);
  CHECK(listed().state() == "DEAD");
  CHECK(listed().death() == "its process exited with code 3");
  CHECK(listed().name_space() == "ns");
  CHECK(listed().job() == world.job);
}

SCENARIO("dead actors are remembered up to a bound, in memory and on disk") {
  ActorWorld world({.max_remembered = 3});
  for (uint64_t i = 1; i <= 10; ++i) {
    world.id = ActorId::Make(world.driver, i);
    world.Ask(world.driver, world.Registration("", /*detached=*/true));
    world.Started(world.node, 1);
    world.Died(world.node, 1);
  }
  world.Pass(100 * kMillisecond, {world.node});
  size_t rows = 0;
  for (const auto& [key, value] : world.disk()) rows += key.first == Table::kActors;
  CHECK(rows == 3);
  CHECK(world.Lookup(ActorId::Make(world.driver, 10)).state() == Info::DEAD);
  CHECK(world.Lookup(ActorId::Make(world.driver, 1)).actor_id().empty());
}

SCENARIO("the functions of an ended job stay as long as a detached actor of it lives") {
  ActorWorld world;
  world.Ask(world.driver, KvPut("users", "value"));
  proto::GcsRequest put = KvPut("function", "code");
  put.mutable_kv_put()->set_owner(world.job);
  world.Ask(world.driver, put);
  world.Ask(world.driver, world.Registration("name", /*detached=*/true));
  world.Started(world.node, 1);
  proto::GcsRequest gone;
  gone.mutable_process_gone()->set_process(world.driver.packed());
  world.Ask(RayletOf(world.node), gone);
  CHECK(world.service().Stats().jobs == 0);
  CHECK(world.service().Stats().keys == 2);
  SECTION("also over a restart of the GCS") {
    world.Restart();
    world.ReportNode(world.node, [&] {
      proto::NodeReport report;
      proto::ActorStateReport& actor = *report.add_actors();
      actor.set_actor_id(world.id.Binary());
      actor.set_incarnation(1);
      actor.mutable_started()->set_process(ProcessId{world.node, 9}.packed());
      return report;
    }());
    CHECK(world.service().Stats().keys == 2);
  }
  world.Died(world.node, 1);
  CHECK(world.service().Stats().keys == 1);
  for (const auto& [key, value] : world.disk()) CHECK(key.first != Table::kKeyOwners);
}

SCENARIO("when listings are full, what creators say of named actors counts all the same") {
  ActorWorld world;
  world.Ask(world.driver, world.Registration("name", /*detached=*/false));
  proto::GcsRequest rows;
  for (uint64_t i = 1; i <= ActorService::kMaxRows; ++i) {
    proto::ActorRow& row = *rows.mutable_actor_rows()->add_rows();
    row.set_actor_id(ActorId::Make({world.node, 77}, i).ToHex());
    row.set_state("ALIVE");
  }
  world.Tell(RayletOf(world.node), rows);
  CHECK(world.Lookup(world.id).state() != Info::DEAD);
  rows.Clear();
  proto::ActorRow& row = *rows.mutable_actor_rows()->add_rows();
  row.set_actor_id(world.id.ToHex());
  row.set_state("DEAD");
  world.Tell(RayletOf(world.node), rows);
  CHECK(world.Lookup(world.id).state() == Info::DEAD);
}

}  // namespace actor_service_test
}  // namespace sheaf
