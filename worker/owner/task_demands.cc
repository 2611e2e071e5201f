// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the submitter asks its raylet for.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "worker/owner/task_submitter.h"

namespace sheaf {
namespace {

// Fewer bytes of arguments are brought to where there is a worker sooner than a worker is found
// beside them.
constexpr uint64_t kBytesThatCount = 1 << 20;
constexpr size_t kMostWanted = 1 << 16;  // Leases of one key.

}  // namespace

// Where the bytes of a task's arguments lie; a node with few of them does not count.
std::vector<std::pair<NodeNumber, uint64_t>> TaskSubmitter::ArgumentBytes(
    const TaskRecord& task) const {
  absl::btree_map<NodeNumber, uint64_t> bytes;
  if (!task.references) return {};
  for (const auto& argument : task.references->arguments) {
    const ObjectEntry& object = *argument.object;
    if (object.state != ObjectState::kStore || !object.location.known()) continue;
    bytes[object.location.node] += object.size;
    if (!object.extra) continue;
    for (const ObjectLocation& copy : object.extra->copies) bytes[copy.node] += object.size;
  }
  absl::erase_if(bytes, [](const auto& entry) { return entry.second < kBytesThatCount; });
  return {bytes.begin(), bytes.end()};
}

void TaskSubmitter::UpdateDemand(LeaseKey& key) {
  const size_t held = key.leases.size();
  // More than is held only while tasks queue; then enough for all of them, in steps, so that each
  // step is one message. Fewer are told by Settle.
  size_t wanted = held;
  if (!key.queue.empty()) {
    const size_t needed = held + key.queue.size;
    wanted = key.wanted_sent;
    if (wanted < needed) {
      wanted = std::min(std::bit_ceil(needed), kMostWanted);
      key.rose = true;
    }
  } else if (key.wanted_sent <= held) {
    return;
  }
  if (key.announced && wanted == key.wanted_sent) return;
  SendDemand(key, wanted);
  if (!key.settles && !key.queue.empty()) {
    key.settles = true;
    settling_.push_back(key.number);
  }
}

// Steps ask for more than there is, and a queue gets shorter without a word: what waits is told as it
// is now and then, and by the name of the task that is next.
Nanos TaskSubmitter::Settle(Nanos now) {
  if (now < settle_at_) return settling_.empty() ? kForever : settle_at_;
  settle_at_ = now + kSettle;
  Nanos next = kForever;  // A queue gets shorter as tasks are pushed, behind which there are ticks.
  std::erase_if(settling_, [&](uint64_t number) {
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return true;
    LeaseKey& key = *found->second;
    if (key.queue.empty()) {  // UpdateDemand has said so.
      key.settles = false;
      return true;
    }
    const size_t exact = std::min<size_t>(key.leases.size() + key.queue.size, kMostWanted);
    if (std::exchange(key.rose, false)) key.rose_at = now;
    const Nanos quiet_at = Deadline(key.rose_at, kQuiet);
    const bool stays = exact < key.wanted_sent && 2 * exact >= key.wanted_sent && now < quiet_at;
    if (stays) next = std::min(next, quiet_at);
    const size_t wanted = stays ? key.wanted_sent : exact;
    if (wanted != key.wanted_sent || key.queue.first->spec->spec.lease().name() != key.spec.name())
      SendDemand(key, wanted);
    return false;
  });
  return next;
}

void TaskSubmitter::SendDemand(LeaseKey& key, size_t wanted) {
  if (!key.queue.empty()) {  // What others leave idle may be what this needs.
    for (auto& [worker, lease] : by_worker_) {
      if (IdlesUnheard(*lease)) WantOnlyHeld(*lease->key);
    }
  }
  proto::LeaseDemand demand;
  demand.set_key(key.number);
  if (!key.queue.empty()) {
    const std::string& name = key.queue.first->spec->spec.lease().name();
    if (!key.announced || name != key.spec.name()) {
      key.spec.set_name(name);
      *demand.mutable_spec() = key.spec;
    }
  }
  key.announced = true;
  demand.set_wanted(static_cast<uint32_t>(wanted));
  demand.set_backlog(key.queue.size);
  if (!key.queue.empty() && key.queue.first->has_reference_arguments()) {
    for (const auto& [node, bytes] : ArgumentBytes(*key.queue.first)) {
      demand.add_argument_nodes(node);
      demand.add_argument_node_bytes(bytes);
    }
  }
  key.wanted_sent = static_cast<uint32_t>(wanted);
  key.backlog_sent = key.queue.size;
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseDemand, demand);
}

void TaskSubmitter::WantOnlyHeld(LeaseKey& key) {
  key.wanted_sent = static_cast<uint32_t>(key.leases.size());
  key.backlog_sent = 0;
  proto::LeaseDemand demand;
  demand.set_key(key.number);
  demand.set_wanted(key.wanted_sent);
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseDemand, demand);
}

}  // namespace sheaf
