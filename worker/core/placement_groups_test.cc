// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/placement_groups.h"

#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace placement_groups_test {

struct GroupsTest {
  proto::GroupRequest Taken() {
    proto::GroupRequest request;
    REQUIRE(request.ParseFromString(transport.Take(FrameKind::kGroupRequest).body));
    return request;
  }
  RecordingTransport transport;
  PlacementGroups groups{kSelf, transport};
};

SCENARIO("a group is pending until the raylet says where it is") {
  GroupsTest test;
  proto::GroupRequest request;
  request.add_bundles();
  const auto id = test.groups.Create(request, 5);
  REQUIRE(id.ok());
  CHECK(id->maker() == kSelf);
  CHECK(test.Taken().action() == proto::GroupRequest::CREATE);
  REQUIRE(test.groups.Find(*id) != nullptr);
  CHECK(!PlacementGroups::IsSettled(*test.groups.Find(*id)));
  proto::GroupState state;
  state.set_id(id->Binary());
  state.set_state(proto::GroupState::INFEASIBLE);  // For now.
  test.groups.OnState(state);
  CHECK(!PlacementGroups::IsSettled(*test.groups.Find(*id)));
  state.set_state(proto::GroupState::CREATED);
  test.groups.OnState(state);
  CHECK(PlacementGroups::IsSettled(*test.groups.Find(*id)));
  test.groups.Remove(*id);
  CHECK(test.Taken().action() == proto::GroupRequest::REMOVE);
  CHECK(test.groups.Find(*id) == nullptr);
}

SCENARIO("another process's group is asked about once") {
  GroupsTest test;
  const auto id = PlacementGroupId::Make(kWorker, 3);
  test.groups.Watch(id);
  test.groups.Watch(id);
  CHECK(test.Taken().action() == proto::GroupRequest::WATCH);
  CHECK(test.transport.Count(FrameKind::kGroupRequest) == 0);
  CHECK(test.groups.Find(id)->state() == proto::GroupState::PENDING);
}

SCENARIO("a group of nothing is refused") {
  GroupsTest test;
  CHECK(absl::IsInvalidArgument(test.groups.Create({}, 5).status()));
  CHECK(test.transport.sent.empty());
}

}  // namespace placement_groups_test
}  // namespace sheaf
