// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/net_collectives.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/reduce_ops.h"

namespace sheaf {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kChunkBytes = 8 << 20;   // Of an array that is reduced; bounds the scratch memory.
constexpr size_t kSmallBytes = 16 << 10;  // Up to here all get all, in one step instead of two.

const std::byte* InputOf(const Operation& operation) {
  return static_cast<const std::byte*>(operation.input);
}
std::byte* OutputOf(const Operation& operation) {
  return static_cast<std::byte*>(operation.output);
}
void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

// The transfers of one step. Given up when an error has ended the group.
class Step {
 public:
  Step(NetGroup& group, const std::vector<int>& members, const Waiting& waiting)
      : group_(group), members_(members), waiting_(waiting) {}
  ~Step() {
    for (const Begun& begun : begun_) delete begun.transfer;
  }
  void Send(int member, const std::byte* bytes, size_t size) {
    if (size == 0) return;
    const int rank = members_[static_cast<size_t>(member)];
    begun_.push_back(
        {rank, group_.bulk().Send(rank, BulkTransport::Lane::kCollective, bytes, size)});
  }
  void Receive(int member, std::byte* bytes, size_t size) {
    if (size == 0) return;
    const int rank = members_[static_cast<size_t>(member)];
    begun_.push_back(
        {rank, group_.bulk().Receive(rank, BulkTransport::Lane::kCollective, bytes, size)});
  }
  absl::Status Wait() {
    for (Begun& begun : begun_) {
      SHEAF_RETURN_IF_ERROR(
          group_.Await(waiting_, begun.rank, std::exchange(begun.transfer, nullptr)));
    }
    begun_.clear();
    return absl::OkStatus();
  }

 private:
  struct Begun {
    int rank;
    BulkTransport::Transfer* transfer;
  };
  NetGroup& group_;
  const std::vector<int>& members_;
  const Waiting& waiting_;
  std::vector<Begun> begun_;
};

}  // namespace

NetCollectives::NetCollectives(NetGroup& group, std::vector<int> members)
    : group_(group), members_(std::move(members)) {
  while (members_[static_cast<size_t>(index_)] != group.rank()) ++index_;
}

std::byte* NetCollectives::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(new std::byte[bytes]);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

absl::Status NetCollectives::Run(const Operation& operation, const Waiting& waiting,
                                 size_t divisor) {
  divisor_ = divisor == 0 ? members_.size() : divisor;
  const size_t element = SizeOf(operation.type);
  if (operation.count == 0) return absl::OkStatus();
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce: {
      const int root = operation.kind == CollectiveKind::kReduce ? operation.peer : -1;
      const size_t chunk = kChunkBytes / element;
      for (size_t begin = 0; begin < operation.count; begin += chunk) {
        SHEAF_RETURN_IF_ERROR(
            Reduce(operation, begin, std::min(chunk, operation.count - begin), root, waiting));
      }
      return absl::OkStatus();
    }
    case CollectiveKind::kReduceScatter:
      return ReduceScatter(operation, waiting);
    case CollectiveKind::kAllGather:
      return AllGather(operation, waiting);
    case CollectiveKind::kBroadcast:
      return Broadcast(operation, waiting);
    case CollectiveKind::kAllToAll:
      return AllToAll(operation, waiting);
    default:
      return absl::OkStatus();
  }
}

NetCollectives::Slice NetCollectives::SliceOf(size_t count, int member) const {
  const auto members = static_cast<size_t>(size());
  const size_t each = ((count + members - 1) / members + kLineBytes - 1) / kLineBytes * kLineBytes;
  const size_t begin = std::min(static_cast<size_t>(member) * each, count);
  return {begin, std::min(begin + each, count)};
}

absl::Status NetCollectives::Reduce(const Operation& operation, size_t begin, size_t count,
                                    int root, const Waiting& waiting) {
  const size_t element = SizeOf(operation.type);
  const size_t bytes = count * element;
  const std::byte* const input = InputOf(operation) + begin * element;
  std::byte* const output =
      root < 0 || root == index_ ? OutputOf(operation) + begin * element : nullptr;
  const bool small = bytes <= kSmallBytes;
  // Who reduces which part: for few bytes everybody who wants it reduces all.
  const auto part = [&](int member) -> Slice {
    if (!small) return SliceOf(count, member);
    return root < 0 || member == root ? Slice{0, count} : Slice{0, 0};
  };
  const Slice mine = part(index_);
  const size_t stride = (mine.size() * element + kLineBytes - 1) / kLineBytes * kLineBytes;
  // The last block is for a result that has no place in an output.
  std::byte* const scratch = Scratch(stride * static_cast<size_t>(size() + 1));
  Step step(group_, members_, waiting);
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    step.Receive(member, scratch + stride * static_cast<size_t>(member), mine.size() * element);
    const Slice theirs = part(member);
    step.Send(member, input + theirs.begin * element, theirs.size() * element);
  }
  SHEAF_RETURN_IF_ERROR(step.Wait());
  SHEAF_FAILPOINT("collective.consumed");
  std::byte* const result = output != nullptr ? output + mine.begin * element
                                              : scratch + stride * static_cast<size_t>(size());
  if (mine.size() != 0) {
    std::vector<const std::byte*> sources;
    for (int member = 0; member < size(); ++member) {
      sources.push_back(member == index_ ? input + mine.begin * element
                                         : scratch + stride * static_cast<size_t>(member));
    }
    std::byte* const targets[] = {result};
    sheaf::ReduceAndDivide(operation.type, operation.op, sources, targets, mine.size(), divisor_);
  }
  if (small) return absl::OkStatus();
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    if (root < 0 || root == index_) {
      const Slice theirs = part(member);
      step.Receive(member, output + theirs.begin * element, theirs.size() * element);
    }
    if (root < 0 || root == member) step.Send(member, result, mine.size() * element);
  }
  return step.Wait();
}

absl::Status NetCollectives::ReduceScatter(const Operation& operation, const Waiting& waiting) {
  const size_t element = SizeOf(operation.type);
  const size_t chunk = kChunkBytes / element;
  for (size_t begin = 0; begin < operation.count; begin += chunk) {
    const size_t count = std::min(chunk, operation.count - begin);
    const auto block = [&](int member) {
      return InputOf(operation) + (static_cast<size_t>(member) * operation.count + begin) * element;
    };
    std::byte* const scratch = Scratch(count * element * static_cast<size_t>(size()));
    Step step(group_, members_, waiting);
    std::vector<const std::byte*> sources;
    for (int member = 0; member < size(); ++member) {
      std::byte* const theirs = scratch + static_cast<size_t>(member) * count * element;
      sources.push_back(member == index_ ? block(index_) : theirs);
      if (member == index_) continue;
      step.Receive(member, theirs, count * element);
      step.Send(member, block(member), count * element);
    }
    SHEAF_RETURN_IF_ERROR(step.Wait());
    std::byte* const targets[] = {OutputOf(operation) + begin * element};
    sheaf::ReduceAndDivide(operation.type, operation.op, sources, targets, count, divisor_);
  }
  return absl::OkStatus();
}

absl::Status NetCollectives::AllGather(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = operation.count * SizeOf(operation.type);
  Step step(group_, members_, waiting);
  for (int member = 0; member < size(); ++member) {
    std::byte* const block = OutputOf(operation) + static_cast<size_t>(member) * bytes;
    if (member == index_) {
      Copy(block, InputOf(operation), bytes);
    } else {
      step.Receive(member, block, bytes);
      step.Send(member, InputOf(operation), bytes);
    }
  }
  return step.Wait();
}

// Many bytes: the root gives each of the others a slice, which they give each other.
absl::Status NetCollectives::Broadcast(const Operation& operation, const Waiting& waiting) {
  const size_t element = SizeOf(operation.type);
  const int root = operation.peer;
  const bool whole = size() <= 2 || operation.count * element <= kSmallBytes;
  Step step(group_, members_, waiting);
  if (whole) {
    const size_t bytes = operation.count * element;
    if (index_ != root) step.Receive(root, OutputOf(operation), bytes);
    for (int member = 0; index_ == root && member < size(); ++member) {
      if (member != root) step.Send(member, InputOf(operation), bytes);
    }
    return step.Wait();
  }
  const auto members = static_cast<size_t>(size() - 1);
  const size_t each = (operation.count + members - 1) / members;
  const auto slice = [&](int member) -> Slice {
    const auto place = static_cast<size_t>(member - (member > root ? 1 : 0));
    const size_t begin = std::min(place * each, operation.count);
    return {begin, std::min(begin + each, operation.count)};
  };
  if (index_ == root) {
    for (int member = 0; member < size(); ++member) {
      if (member == root) continue;
      step.Send(member, InputOf(operation) + slice(member).begin * element,
                slice(member).size() * element);
    }
    return step.Wait();
  }
  const Slice mine = slice(index_);
  std::byte* const output = OutputOf(operation);
  step.Receive(root, output + mine.begin * element, mine.size() * element);
  SHEAF_RETURN_IF_ERROR(step.Wait());
  for (int member = 0; member < size(); ++member) {
    if (member == root || member == index_) continue;
    step.Receive(member, output + slice(member).begin * element, slice(member).size() * element);
    step.Send(member, output + mine.begin * element, mine.size() * element);
  }
  return step.Wait();
}

absl::Status NetCollectives::AllToAll(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = operation.count * SizeOf(operation.type);
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (int member = 0; member < size(); ++member) {
    inputs.push_back(InputOf(operation) + static_cast<size_t>(member) * bytes);
    outputs.push_back(OutputOf(operation) + static_cast<size_t>(member) * bytes);
  }
  return Exchange(inputs, outputs, bytes, waiting);
}

absl::Status NetCollectives::Exchange(const std::vector<const std::byte*>& inputs,
                                      const std::vector<std::byte*>& outputs, size_t bytes,
                                      const Waiting& waiting) {
  Step step(group_, members_, waiting);
  for (int member = 0; member < size(); ++member) {
    const auto at = static_cast<size_t>(member);
    if (member == index_) {
      if (inputs[at] != nullptr && outputs[at] != nullptr) Copy(outputs[at], inputs[at], bytes);
      continue;
    }
    if (outputs[at] != nullptr) step.Receive(member, outputs[at], bytes);
    if (inputs[at] != nullptr) step.Send(member, inputs[at], bytes);
  }
  return step.Wait();
}

}  // namespace sheaf
