// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Frames that processes and the GCS send to a raylet with its store, in any order.
#include "raylet/raylet_node_for_test.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

uint8_t Number(FrameKind kind) { return static_cast<uint8_t>(kind); }

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds;
  proto::LeaseDemand demand;
  demand.set_key(1);
  demand.set_wanted(2);
  (*demand.mutable_spec()->mutable_resources()->mutable_amounts())["CPU"] = kUnit;
  seeds.push_back(FrameOf(0, Number(FrameKind::kLeaseDemand), demand.SerializeAsString()));
  proto::GroupRequest group;
  group.set_id(PlacementGroupId::Make({1, 1}, 1).Binary());
  (*group.add_bundles()->mutable_amounts())["CPU"] = kUnit;
  seeds.push_back(FrameOf(0, Number(FrameKind::kGroupRequest), group.SerializeAsString()));
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STATUS);
  seeds.push_back(FrameOf(2, Number(FrameKind::kStateQuery), query.SerializeAsString()));
  proto::RefsReport report;
  report.set_sequence(1);
  std::string ids;
  AppendId(&ids, ObjectId::Make({1, 2}, 3, 1));
  report.set_held_ids(ids);
  seeds.push_back(FrameOf(1, Number(FrameKind::kRefsReport), report.SerializeAsString()));
  proto::GcsEvent event;
  event.mutable_start_actor()->set_actor_id(ActorId::Make({1, 2}, 3).Binary());
  event.mutable_start_actor()->set_incarnation(1);
  seeds.push_back(FrameOf(3, 1, event.SerializeAsString()));
  for (int kind = 0; kind < 8; ++kind)
    seeds.push_back(FrameOf(1, static_cast<uint8_t>(128 + kind), std::string(64, '\1')));
  const HoldHead hold{.ticket = 1, .caller = ProcessId{1, 1}.packed(), .count = 1};
  const HeldObject held{ObjectId::Make({1, 2}, 3, 1), 1 << 20};
  seeds.push_back(FrameOf(1, Number(kStoreHold), std::string(AsBytes(hold)).append(AsBytes(held))));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* node = new RayletNode;
  static ProcessId processes[3];
  static int used = 0;
  if (used++ % 200 == 0) {  // A process that misbehaves is ended, so new ones come.
    delete node;
    node = new RayletNode;
    processes[0] = node->Driver();
    node->WorkersReady();
    processes[1] = ProcessId::Unpack(node->Lease(processes[0]).worker());
    processes[2] = node->Attach(ProcessRole::kTool);
  }
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const uint8_t from = input.Byte();
    const uint8_t kind = input.Byte();
    const std::string body = input.Bytes(input.Short());
    if (from % 4 == 3) {
      node->raylet->OnGcsFrame({kind % 2 == 0 ? FrameKind::kGcsReply : FrameKind::kGcsEvent, body});
    } else {
      node->raylet->OnFrame(processes[from % 4], {FrameKind{kind}, body});
    }
  }
  node->Advance(10 * kMillisecond);
  return 0;
}
