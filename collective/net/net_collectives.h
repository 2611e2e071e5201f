// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective operations among some ranks of a group on several nodes, straight between each two of
// them: every member reduces its slice of the arrays of all, in the order of the members, and gives
// it to the others. So all get the same bits, rounded once, as from shared memory (shm_group.h).
//
// A long array is reduced in pieces, one behind the other: while the results of one travel, the
// inputs of the next do. What few bytes all members have goes with the words by which they enter the
// operation, if all ranks are members, and each reduces it for itself.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collective/communicator.h"
#include "collective/net/bulk_lane.h"
#include "collective/net/net_group.h"

namespace sheaf {

// One operation at a time.
class NetCollectives {
 public:
  // `members`: ranks of `group`, ascending, among them this one; each two are connected.
  NetCollectives(NetGroup& group, std::vector<int> members);

  // Where all ranks of the group are members: what this one shall announce the operation with, and
  // what may be sent of it before all have entered; RunInlined or Run follows.
  std::string_view Inlined(const Operation& operation) const;
  void Begin(const Operation& operation);

  // `waiting` has been entered by all; `operation` is what these members do for it: roots and
  // blocks are counted in members. Not for pairs. Input and output as communicator.h says.
  absl::Status Run(const Operation& operation, const Waiting& waiting) {
    return Run(operation, waiting, {members_.size(), {}});
  }
  // An average of what stands for several ranks each, as ReduceAndDivide says.
  struct Average {
    size_t divisor = 1;
    std::span<const float> weights;  // By member; valid while it runs.
  };
  absl::Status Run(const Operation& operation, const Waiting& waiting, const Average& average);
  // The same where the announcements had all that is needed (IsInlined). kInternal: one had not.
  bool IsInlined(const Operation& operation) const;
  absl::Status RunInlined(const Operation& operation, const Waiting& waiting);
  // Exchanges with members blocks of different places: block m of `bytes` bytes at `inputs[m]` goes
  // to member m, whose block for this rank comes to `outputs[m]`. nullptr: none.
  absl::Status Exchange(const std::vector<const std::byte*>& inputs,
                        const std::vector<std::byte*>& outputs, size_t bytes,
                        const Waiting& waiting);

  int index() const { return index_; }  // This rank's among the members.
  int size() const { return static_cast<int>(members_.size()); }

 private:
  struct Slice {
    size_t begin, end;  // Elements.
    size_t size() const { return end - begin; }
  };
  // How an array is reduced: in pieces of so many elements, of which each member has a slice.
  struct Pieces {
    size_t elements = 0;
    size_t count = 0;
    size_t stride = 0;  // Bytes between two members' slices in scratch memory.
  };
  Pieces PiecesOf(const Operation& operation) const;
  Slice SliceOf(size_t count, int member) const;
  bool Wants(const Operation& operation, int member) const;

  // Steps of one piece: the inputs of all go to who reduces them, and the results to who wants them.
  void Scatter(const Operation& operation, const Pieces& pieces, size_t piece);
  void ReducePiece(const Operation& operation, const Pieces& pieces, size_t piece);
  void Gather(const Operation& operation, const Pieces& pieces, size_t piece);
  std::byte* ResultOf(const Operation& operation, const Pieces& pieces, size_t piece);
  std::byte* ScratchOf(const Pieces& pieces, size_t piece, int member);

  absl::Status Reduce(const Operation& operation, const Waiting& waiting);
  absl::Status ReduceFew(const Operation& operation, const Waiting& waiting);
  absl::Status ReduceScatter(const Operation& operation, const Waiting& waiting);
  absl::Status AllGather(const Operation& operation, const Waiting& waiting);
  absl::Status Broadcast(const Operation& operation, const Waiting& waiting);
  absl::Status AllToAll(const Operation& operation, const Waiting& waiting);
  std::byte* Scratch(size_t bytes);

  // Transfers with members, by their places.
  void Send(int member, const std::byte* bytes, size_t size, BulkBatch& batch);
  void Receive(int member, std::byte* bytes, size_t size, BulkBatch& batch);
  absl::Status Await(const Waiting& waiting, const BulkBatch& batch,
                     BulkLane::Until until = BulkLane::Until::kAll) {
    return group_.Await(waiting, lane_, batch, until);
  }

  NetGroup& group_;
  const std::vector<int> members_;
  int index_ = 0;
  Average average_;
  // The two pieces that are under way, by number; `begun_`: the first one's inputs are.
  BulkBatch scattered_[2];
  BulkBatch gathered_[2];
  bool begun_ = false;
  BulkLane lane_;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace sheaf
