// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/waiting_demand.h"

#include <catch2/catch.hpp>
#include <string>

#include "gcs/actors/actor_world_for_test.h"

namespace sheaf {
namespace waiting_demand_test {

// Nodes have two CPUs each.
class World : public ActorWorld {
 public:
  void MakeActor(uint32_t number, int64_t cpus) {
    proto::GcsRequest request = Registration("", true);
    proto::RegisterActor& actor = *request.mutable_register_actor();
    actor.set_actor_id(ActorId::Make(driver, number).Binary());
    actor.set_class_name("Counter");
    for (auto* amounts : {actor.mutable_lease()->mutable_resources()->mutable_amounts(),
                          actor.mutable_lease()->mutable_running()->mutable_amounts()})
      (*amounts)["CPU"] = cpus * 10'000;
    REQUIRE(Ask(driver, request).error() == 0);
  }
  void Submit(const std::string& id, int64_t cpus) {
    proto::GcsRequest request;
    proto::Entrypoint& wanted = *request.mutable_submit_entrypoint()->mutable_entrypoint();
    wanted.set_submission_id(id);
    wanted.set_command("true");
    (*wanted.mutable_resources()->mutable_amounts())["CPU"] = cpus * 10'000;
    REQUIRE(Ask(RayletOf(node), request).error() == 0);
  }
  void Has(int64_t cpus) {
    proto::GcsRequest heartbeat;
    (*heartbeat.mutable_heartbeat()->mutable_available()->mutable_amounts())["CPU"] = cpus * 10'000;
    Tell(RayletOf(node), heartbeat);
  }
  proto::DemandList Demand() {
    proto::GcsRequest request;
    request.mutable_list_demand();
    return Ask(RayletOf(node), request).demand();
  }
};

SCENARIO("what the GCS has no node for is demand, by shape") {
  World world;
  CHECK(world.Demand().demand().empty());
  world.MakeActor(1, 16);
  world.MakeActor(2, 16);
  world.Submit("wide", 32);
  const proto::DemandList list = world.Demand();
  REQUIRE(list.demand_size() == 2);
  CHECK(list.demand(0).count() == 2);
  CHECK(list.demand(0).resources().amounts().at("CPU") == 160'000);
  CHECK(list.demand(0).infeasible());
  CHECK_THAT(list.demand(0).words(), Catch::StartsWith("detached actor Counter: no node has"));
  CHECK(list.demand(1).count() == 1);
  CHECK(list.demand(1).infeasible());
  CHECK_THAT(list.demand(1).words(), Catch::StartsWith("job wide: no node has"));
  CHECK(world.service().Stats().infeasible_actors == 2);
  CHECK(world.service().Stats().infeasible_submissions == 1);
  WHEN("one shape is of both kinds") {
    world.Submit("alike", 16);
    CHECK(world.Demand().demand(0).count() == 3);
    CHECK(world.Demand().demand_size() == 2);
  }
  WHEN("an actor is no longer wanted, and a job is stopped") {
    proto::GcsRequest end;
    end.mutable_end_actor()->set_actor_id(ActorId::Make(world.driver, 1).Binary());
    world.Ask(world.driver, end);
    proto::GcsRequest stop;
    stop.mutable_stop_submission()->set_submission_id("wide");
    world.Ask(world.driver, stop);
    REQUIRE(world.Demand().demand_size() == 1);
    CHECK(world.Demand().demand(0).count() == 1);
    CHECK(world.service().Stats().infeasible_actors == 1);
    CHECK(world.service().Stats().infeasible_submissions == 0);
  }
}

SCENARIO("what waits for room alone is demand that could be met") {
  World world;
  world.Has(0);
  world.Submit("later", 2);
  const proto::DemandList list = world.Demand();
  REQUIRE(list.demand_size() == 1);
  CHECK_FALSE(list.demand(0).infeasible());
  CHECK_THAT(list.demand(0).words(), Catch::StartsWith("job later waits for room"));
  CHECK(world.service().Stats().infeasible_submissions == 0);
  THEN("it is none when it has its room") {
    world.Has(2);
    world.Pass(1100 * kMillisecond, {world.node});
    CHECK(world.Demand().demand().empty());
  }
  THEN("an actor that a raylet was told to start is in the queue of that one") {
    world.MakeActor(1, 1);
    CHECK(world.Starts(world.node).size() == 1);
    CHECK(world.Demand().demand_size() == 1);
  }
}

}  // namespace waiting_demand_test
}  // namespace sheaf
