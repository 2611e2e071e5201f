// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator of a group on several nodes: what is the same whether its nodes have one rank
// each (apart_communicator.h) or more (hierarchical_communicator.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collective/communicator.h"
#include "collective/net/net_group.h"
#include "collective/operation_line.h"

namespace sheaf {

// How a group carries out what all of its ranks have entered.
class NetOperations {
 public:
  virtual ~NetOperations() = default;
  // What the other ranks shall have of this one's array with the word that it has entered
  // `operation`; at most NetGroup::kInlineBytes.
  virtual std::string_view Inlined(const Operation&) const { return {}; }
  // Begins what needs not wait until all have entered.
  virtual void Begin(const Operation&) {}
  virtual absl::Status RunCollective(const Operation& operation, const Waiting& waiting) = 0;
  // kSend and kReceive. `interruptible`: on the user's own thread.
  virtual absl::Status RunPairwise(const Operation& operation, bool interruptible) = 0;
  virtual absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) = 0;
  // Ends what runs, now and later. Any thread.
  virtual void End(const std::string& why) = 0;
  // In a forked child: forgets all without a word.
  virtual void ForgetAfterFork() = 0;
};

class NetCommunicator final : public Communicator {
 public:
  NetCommunicator(std::unique_ptr<NetGroup> group, std::unique_ptr<NetOperations> operations);
  ~NetCommunicator() override;

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  uint64_t epoch() const override { return group_->epoch(); }
  const std::string& name() const override { return group_->options().name; }

  absl::Status Run(const Operation& operation) override;
  std::shared_ptr<Work> Start(const Operation& operation) override;
  void Abort(absl::string_view why) override;
  absl::Status Health() const override { return group_->Failure(); }
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) override {
    return operations_->Allocate(size_bytes);
  }

 private:
  absl::Status Check(const Operation& operation) const;
  absl::Status RunNow(const Operation& operation, bool interruptible);

  std::unique_ptr<NetGroup> group_;
  std::unique_ptr<NetOperations> operations_;
  std::vector<OperationLine> lines_;
};

// Meets the other ranks and connects each with those on other nodes, or with all; then calls
// `complete`. Begins again if a rank is lost on the way, until the options' formation timeout.
absl::StatusOr<std::unique_ptr<NetGroup>> FormNetGroup(
    const CommunicatorOptions& options, Rendezvous& rendezvous, bool all_pairs,
    absl::FunctionRef<absl::Status(NetGroup& group, Nanos deadline)> complete);

}  // namespace sheaf
