// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collective/net/net_collectives.h"
#include "collective/net/net_communicator.h"
#include "collective/shm/shm_communicator.h"

namespace sheaf {
namespace {

// Which ranks are where. Nodes are counted in the order of their leaders.
struct Topology {
  std::vector<std::vector<int>> nodes;  // Ranks, ascending; the first leads.
  std::vector<int> node_of;             // By rank.
  std::vector<int> place_of;            // By rank, within its node.
  std::vector<float> weights;           // By node: how many ranks it has.
  bool even = true;                     // All nodes have as many ranks.

  explicit Topology(const NetGroup& group) {
    std::map<std::string, int> found;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      const auto [at, is_new] =
          found.try_emplace(group.member(rank).node, static_cast<int>(nodes.size()));
      if (is_new) nodes.emplace_back();
      std::vector<int>& node = nodes[static_cast<size_t>(at->second)];
      node_of.push_back(at->second);
      place_of.push_back(static_cast<int>(node.size()));
      node.push_back(rank);
    }
    for (const auto& node : nodes) {
      weights.push_back(static_cast<float>(node.size()));
      even &= node.size() == nodes[0].size();
    }
  }
  std::vector<int> Leaders() const {
    std::vector<int> leaders;
    for (const auto& node : nodes) leaders.push_back(node[0]);
    return leaders;
  }
};

// Whether this thread is the user's own, which may go while a part of its operation runs.
thread_local bool may_interrupt = false;

bool Is16Bit(DataType type) { return type == DataType::kFloat16 || type == DataType::kBfloat16; }

class HierarchicalOperations final : public NetOperations {
 public:
  // `local`: this node's ranks, in their order.
  HierarchicalOperations(NetGroup& group, Topology topology, std::unique_ptr<Communicator> local)
      : group_(group),
        topology_(std::move(topology)),
        own_node_(topology_.node_of[static_cast<size_t>(group.rank())]),
        here_(topology_.nodes[static_cast<size_t>(own_node_)]),
        local_(std::move(local)) {
    if (IsLeader()) leaders_ = std::make_unique<NetCollectives>(group, topology_.Leaders());
  }

  absl::Status RunCollective(const Operation& operation, const Waiting& waiting) override {
    if (operation.count == 0 || operation.kind == CollectiveKind::kBarrier) {
      return absl::OkStatus();  // All have entered.
    }
    switch (operation.kind) {
      case CollectiveKind::kAllReduce:
        return AllReduce(operation, waiting);
      case CollectiveKind::kReduce:
        return Reduce(operation, waiting);
      case CollectiveKind::kReduceScatter:
        return ReduceScatter(operation, waiting);
      case CollectiveKind::kAllGather:
        return AllGather(operation, waiting);
      case CollectiveKind::kBroadcast:
        return Broadcast(operation, waiting);
      case CollectiveKind::kAllToAll:
        return AllToAll(operation, waiting);
      default:
        return absl::InternalError("no collective operation");
    }
  }

  absl::Status RunPairwise(const Operation& operation, bool interruptible) override {
    const auto peer = static_cast<size_t>(operation.peer);
    const auto move = [&](const Waiting& waiting) {
      if (topology_.node_of[peer] != own_node_) return group_.MoveMessage(waiting);
      Operation here = operation;
      here.peer = topology_.place_of[peer];
      return Local(here, waiting);
    };
    return operation.kind == CollectiveKind::kSend
               ? group_.SendMessage(operation, interruptible, move)
               : group_.ReceiveMessage(operation, interruptible, move);
  }

  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) override {
    return local_->Allocate(size_bytes);
  }
  void End(const std::string& why) override {
    local_->Abort(why);
    group_.BreakBulk();
  }
  void ForgetAfterFork() override {}  // `local_` looks for itself.

 private:
  bool IsLeader() const { return here_[0] == group_.rank(); }

  // A part of what `waiting` stands for, among the ranks of this node.
  absl::Status Local(Operation operation, const Waiting& waiting) {
    if (here_.size() == 1) {
      operation.peer = 0;
      if (operation.kind == CollectiveKind::kBroadcast) return absl::OkStatus();
    }
    operation.timeout = std::max<Nanos>(waiting.deadline - MonotonicNow(), kMillisecond);
    may_interrupt = waiting.interruptible;
    const absl::Status status = local_->Run(operation);
    may_interrupt = false;
    if (status.ok()) return status;
    const std::optional<int> place = RankOf(status);
    const bool known = place.has_value() && *place < static_cast<int>(here_.size());
    return group_.FailPart(waiting, status, known ? here_[static_cast<size_t>(*place)] : -1);
  }
  absl::Status LocalBroadcast(void* array, size_t count, DataType type, const Waiting& waiting) {
    return Local({.kind = CollectiveKind::kBroadcast,
                  .type = type,
                  .input = array,
                  .output = array,
                  .count = count},
                 waiting);
  }

  // Averages: 16 bits could not hold the sum of what they can hold, so they are averaged twice. An
  // average of a node counts as often as the node has ranks.
  ReduceOp LocalOp(const Operation& operation) const {
    if (operation.op != ReduceOp::kAverage) return operation.op;
    return Is16Bit(operation.type) ? ReduceOp::kAverage : ReduceOp::kSum;
  }
  NetCollectives::Average LeadersAverage(const Operation& operation) const {
    const NetCollectives::Average of_ranks{static_cast<size_t>(group_.world_size()), {}};
    if (LocalOp(operation) != ReduceOp::kAverage) return of_ranks;
    if (topology_.even) return {topology_.nodes.size(), {}};
    return {of_ranks.divisor, topology_.weights};
  }
  // Memory of this rank for what stands between two steps.
  std::byte* Scratch(size_t bytes) {
    if (bytes > scratch_bytes_) {
      scratch_.reset();
      scratch_bytes_ = 0;
      absl::StatusOr<std::shared_ptr<std::byte>> shared = local_->Allocate(bytes);
      // Private memory is slower, and there is more of it.
      scratch_ = shared.ok() ? *std::move(shared)
                             : std::shared_ptr<std::byte>(new std::byte[bytes],
                                                          std::default_delete<std::byte[]>());
      scratch_bytes_ = bytes;
    }
    return scratch_.get();
  }

  // The reduction of all at this node's leader, if `wanted_at` is its node or -1.
  absl::Status ReduceToLeaders(const Operation& operation, const void* input, void* output,
                               size_t count, int wanted_at, const Waiting& waiting) {
    Operation part = operation;
    part.kind = CollectiveKind::kReduce;
    part.op = LocalOp(operation);
    part.input = input;
    part.output = output;
    part.count = count;
    part.peer = 0;
    SHEAF_RETURN_IF_ERROR(Local(part, waiting));
    if (!IsLeader()) return absl::OkStatus();
    part.op = operation.op;
    part.kind = wanted_at < 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduce;
    part.peer = std::max(wanted_at, 0);
    part.input = output;
    return leaders_->Run(part, waiting, LeadersAverage(operation));
  }

  absl::Status AllReduce(const Operation& operation, const Waiting& waiting) {
    SHEAF_RETURN_IF_ERROR(ReduceToLeaders(operation, operation.input, operation.output,
                                          operation.count, -1, waiting));
    return LocalBroadcast(operation.output, operation.count, operation.type, waiting);
  }

  absl::Status Reduce(const Operation& operation, const Waiting& waiting) {
    const int root = operation.peer;
    const int root_node = topology_.node_of[static_cast<size_t>(root)];
    const size_t bytes = operation.count * SizeOf(operation.type);
    void* output = group_.rank() == root ? operation.output : nullptr;
    if (IsLeader() && output == nullptr) {
      output = Scratch(bytes);
    }
    SHEAF_RETURN_IF_ERROR(
        ReduceToLeaders(operation, operation.input, output, operation.count, root_node, waiting));
    if (own_node_ != root_node || here_[0] == root) return absl::OkStatus();
    // From the leader to the root; pairs of this node carry messages of the user.
    std::byte* const unused = Scratch(bytes);
    return LocalBroadcast(output != nullptr ? output : unused, operation.count, operation.type,
                          waiting);
  }

  absl::Status ReduceScatter(const Operation& operation, const Waiting& waiting) {
    const size_t element = SizeOf(operation.type);
    const auto world = static_cast<size_t>(group_.world_size());
    std::byte* const all = Scratch(operation.count * world * element);
    SHEAF_RETURN_IF_ERROR(
        ReduceToLeaders(operation, operation.input, all, operation.count * world, -1, waiting));
    SHEAF_RETURN_IF_ERROR(LocalBroadcast(all, operation.count * world, operation.type, waiting));
    const size_t bytes = operation.count * element;
    std::memcpy(operation.output, all + static_cast<size_t>(group_.rank()) * bytes, bytes);
    return absl::OkStatus();
  }

  absl::Status AllGather(const Operation& operation, const Waiting& waiting) {
    const size_t bytes = operation.count * SizeOf(operation.type);
    auto* const output = static_cast<std::byte*>(operation.output);
    // The blocks of this node side by side, then those of all nodes at each leader, then in place.
    std::byte* const gathered = Scratch(bytes * static_cast<size_t>(group_.world_size()));
    std::vector<size_t> starts;  // By node, in blocks.
    size_t blocks = 0;
    size_t largest = 0;
    for (const auto& node : topology_.nodes) {
      starts.push_back(blocks);
      blocks += node.size();
      largest = std::max(largest, node.size());
    }
    std::byte* const own = gathered + starts[static_cast<size_t>(own_node_)] * bytes;
    Operation part = operation;
    part.output = own;
    SHEAF_RETURN_IF_ERROR(Local(part, waiting));
    if (IsLeader()) {
      // Nodes may differ in size: one block of each node at a time.
      for (size_t place = 0; place < largest; ++place) {
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
        for (size_t node = 0; node < topology_.nodes.size(); ++node) {
          inputs.push_back(place < here_.size() ? own + place * bytes : nullptr);
          outputs.push_back(place < topology_.nodes[node].size()
                                ? gathered + (starts[node] + place) * bytes
                                : nullptr);
        }
        SHEAF_RETURN_IF_ERROR(leaders_->Exchange(inputs, outputs, bytes, waiting));
      }
    }
    SHEAF_RETURN_IF_ERROR(
        LocalBroadcast(gathered, operation.count * blocks, operation.type, waiting));
    for (size_t node = 0; node < topology_.nodes.size(); ++node) {
      for (size_t place = 0; place < topology_.nodes[node].size(); ++place) {
        std::byte* const to = output + static_cast<size_t>(topology_.nodes[node][place]) * bytes;
        std::memcpy(to, gathered + (starts[node] + place) * bytes, bytes);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(const Operation& operation, const Waiting& waiting) {
    const int root = operation.peer;
    const int root_node = topology_.node_of[static_cast<size_t>(root)];
    void* const array =
        const_cast<void*>(group_.rank() == root ? operation.input : operation.output);
    Operation part = operation;
    if (own_node_ == root_node) {
      part.peer = topology_.place_of[static_cast<size_t>(root)];
      SHEAF_RETURN_IF_ERROR(Local(part, waiting));
    }
    if (IsLeader()) {
      part.peer = root_node;
      part.input = array;
      part.output = array;
      SHEAF_RETURN_IF_ERROR(leaders_->Run(part, waiting));
    }
    if (own_node_ == root_node) return absl::OkStatus();
    return LocalBroadcast(array, operation.count, operation.type, waiting);
  }

  // Within the node by shared memory, and each two ranks of two nodes for themselves.
  absl::Status AllToAll(const Operation& operation, const Waiting& waiting) {
    const size_t bytes = operation.count * SizeOf(operation.type);
    const auto* const input = static_cast<const std::byte*>(operation.input);
    auto* const output = static_cast<std::byte*>(operation.output);
    std::byte* const scratch = Scratch(2 * bytes * here_.size());
    std::byte* const received = scratch + bytes * here_.size();
    for (size_t place = 0; place < here_.size(); ++place) {
      std::memcpy(scratch + place * bytes, input + static_cast<size_t>(here_[place]) * bytes,
                  bytes);
    }
    Operation part = operation;
    part.input = scratch;
    part.output = received;
    SHEAF_RETURN_IF_ERROR(Local(part, waiting));
    for (size_t place = 0; place < here_.size(); ++place) {
      std::memcpy(output + static_cast<size_t>(here_[place]) * bytes, received + place * bytes,
                  bytes);
    }
    std::vector<int> others;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      const bool there = topology_.node_of[static_cast<size_t>(rank)] != own_node_;
      if (!there && rank != group_.rank()) continue;
      others.push_back(rank);
      inputs.push_back(there ? input + static_cast<size_t>(rank) * bytes : nullptr);
      outputs.push_back(there ? output + static_cast<size_t>(rank) * bytes : nullptr);
    }
    return NetCollectives(group_, others).Exchange(inputs, outputs, bytes, waiting);
  }

  NetGroup& group_;
  const Topology topology_;
  const int own_node_;
  const std::vector<int> here_;  // The ranks of this node.
  const std::unique_ptr<Communicator> local_;
  std::unique_ptr<NetCollectives> leaders_;  // Leaders only.
  std::shared_ptr<std::byte> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> FormHierarchicalCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous) {
  std::optional<Topology> topology;
  std::unique_ptr<Communicator> local;
  const auto form_local = [&](NetGroup& group, Nanos deadline) -> absl::Status {
    topology.emplace(group);
    const auto rank = static_cast<size_t>(options.rank);
    const std::vector<int>& here = topology->nodes[static_cast<size_t>(topology->node_of[rank])];
    CommunicatorOptions within = options;
    within.name = absl::StrCat(options.name, "/", here[0]);
    within.rank = topology->place_of[rank];
    within.world_size = static_cast<int>(here.size());
    within.formation_timeout = std::max<Nanos>(deadline - MonotonicNow(), kMillisecond);
    if (options.interrupted) {
      within.interrupted = [asked = options.interrupted] { return may_interrupt && asked(); };
    }
    const std::unique_ptr<Rendezvous> places = group.LocalRendezvous(here);
    SHEAF_ASSIGN_OR_RETURN(local, FormShmCommunicator(within, *places));
    return absl::OkStatus();
  };
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<NetGroup> group,
                         FormNetGroup(options, rendezvous, /*all_pairs=*/false, form_local));
  auto operations =
      std::make_unique<HierarchicalOperations>(*group, *std::move(topology), std::move(local));
  return std::make_unique<NetCommunicator>(std::move(group), std::move(operations));
}

absl::StatusOr<std::unique_ptr<Communicator>> FormCommunicator(const CommunicatorOptions& options,
                                                               Rendezvous& rendezvous) {
  const Nanos deadline = Deadline(MonotonicNow(), options.formation_timeout);
  absl::StatusOr<std::unique_ptr<Communicator>> formed = FormShmCommunicator(options, rendezvous);
  if (!absl::IsUnimplemented(formed.status())) return formed;
  CommunicatorOptions apart = options;  // A rank is on another node.
  apart.formation_timeout = std::max<Nanos>(deadline - MonotonicNow(), kMillisecond);
  return FormHierarchicalCommunicator(apart, rendezvous);
}

}  // namespace sheaf
