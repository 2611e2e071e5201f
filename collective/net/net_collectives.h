// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective operations among some ranks of a group on several nodes, straight between each two of
// them: every member reduces its slice of the arrays of all, in the order of the members, and gives
// it to the others. So all get the same bits, rounded once, as from shared memory (shm_group.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/communicator.h"
#include "collective/net/net_group.h"

namespace sheaf {

// One operation at a time.
class NetCollectives {
 public:
  // `members`: ranks of `group`, ascending, among them this one; each two are connected.
  NetCollectives(NetGroup& group, std::vector<int> members);

  // `waiting` has been entered by all; `operation` is what these members do for it: roots and
  // blocks are counted in members. Not for pairs. Input and output as communicator.h says.
  // `divisor`: of averages; 0: the number of members.
  absl::Status Run(const Operation& operation, const Waiting& waiting, size_t divisor = 0);
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
  Slice SliceOf(size_t count, int member) const;
  // Reduces `count` elements of all; the result goes to member `root`, or to all (-1).
  absl::Status Reduce(const Operation& operation, size_t begin, size_t count, int root,
                      const Waiting& waiting);
  absl::Status ReduceScatter(const Operation& operation, const Waiting& waiting);
  absl::Status AllGather(const Operation& operation, const Waiting& waiting);
  absl::Status Broadcast(const Operation& operation, const Waiting& waiting);
  absl::Status AllToAll(const Operation& operation, const Waiting& waiting);
  std::byte* Scratch(size_t bytes);

  NetGroup& group_;
  const std::vector<int> members_;
  int index_ = 0;
  size_t divisor_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace sheaf
