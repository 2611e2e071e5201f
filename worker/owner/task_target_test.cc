// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/task_target.h"

#include <catch2/catch.hpp>

#include "worker/owner/created_actors.h"
#include "worker/owner/task_submitter.h"

namespace sheaf {

SCENARIO("a target is what it was made of, and nothing else") {
  OwnedLease lease;
  ActorClient actor;
  CreatedActor created;
  const TaskTarget nobody, of_lease(&lease), of_actor(&actor), of_created(&created);
  CHECK(of_lease.lease() == &lease);
  CHECK(of_actor.actor() == &actor);
  CHECK(of_created.created() == &created);
  for (const TaskTarget& other : {nobody, of_actor, of_created}) CHECK(other.lease() == nullptr);
  for (const TaskTarget& other : {nobody, of_lease, of_created}) CHECK(other.actor() == nullptr);
  for (const TaskTarget& other : {nobody, of_lease, of_actor}) CHECK(other.created() == nullptr);
}

}  // namespace sheaf
