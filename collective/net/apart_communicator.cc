// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/apart_communicator.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collective/net/net_collectives.h"
#include "collective/net/net_communicator.h"

namespace sheaf {
namespace {

std::vector<int> AllRanks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class ApartOperations final : public NetOperations {
 public:
  explicit ApartOperations(NetGroup& group)
      : group_(group), collectives_(group, AllRanks(group.world_size())) {}

  std::string_view Inlined(const Operation& operation) const override {
    return collectives_.Inlined(operation);
  }
  void Begin(const Operation& operation) override { collectives_.Begin(operation); }
  absl::Status RunCollective(const Operation& operation, const Waiting& waiting) override {
    return collectives_.IsInlined(operation) ? collectives_.RunInlined(operation, waiting)
                                             : collectives_.Run(operation, waiting);
  }
  absl::Status RunPairwise(const Operation& operation, bool interruptible) override {
    const auto move = [&](const Waiting& waiting) { return group_.MoveMessage(waiting); };
    return operation.kind == CollectiveKind::kSend
               ? group_.SendMessage(operation, interruptible, move)
               : group_.ReceiveMessage(operation, interruptible, move);
  }
  // Nobody else reads it; what it is good for is to have the same interface.
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) override {
    if (size_bytes > group_.options().arena_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("an array of ", size_bytes,
                                                       " bytes: the group's arena_bytes are ",
                                                       group_.options().arena_bytes));
    }
    constexpr std::align_val_t kAlignment{64};
    return std::shared_ptr<std::byte>(
        static_cast<std::byte*>(::operator new(size_bytes, kAlignment)),
        [](std::byte* bytes) { ::operator delete(bytes, kAlignment); });
  }
  void End(const std::string&) override { group_.BreakBulk(); }
  void ForgetAfterFork() override {}

 private:
  NetGroup& group_;
  NetCollectives collectives_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> FormApartCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous) {
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<NetGroup> group,
                         FormNetGroup(options, rendezvous, /*all_pairs=*/true,
                                      [](NetGroup&, Nanos) { return absl::OkStatus(); }));
  auto operations = std::make_unique<ApartOperations>(*group);
  return std::make_unique<NetCommunicator>(std::move(group), std::move(operations));
}

}  // namespace sheaf
