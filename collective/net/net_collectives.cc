// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/net_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/operation_arrays.h"
#include "collective/reduce_ops.h"

namespace sheaf {
namespace {

constexpr size_t kSmallBytes = 16 << 10;  // Up to here all get all, in one step instead of two.
// Of an array that is reduced: a slice of a piece, and the scratch memory of a piece.
constexpr size_t kSliceBytes = 256 << 10;
constexpr size_t kPieceBytes = 4 << 20;
constexpr size_t kChunkBytes = 8 << 20;  // Of a block of a reduce_scatter.

size_t BytesOf(const Operation& operation) { return operation.count * SizeOf(operation.type); }

size_t RoundUpToLine(size_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce;
}

}  // namespace

NetCollectives::NetCollectives(NetGroup& group, std::vector<int> members)
    : group_(group),
      members_(std::move(members)),
      lane_(group.bulk(), BulkSockets::Lane::kCollective) {
  while (members_[static_cast<size_t>(index_)] != group.rank()) ++index_;
}

void NetCollectives::Send(int member, const std::byte* bytes, size_t size, BulkBatch& batch) {
  lane_.Send(members_[static_cast<size_t>(member)], bytes, size, batch);
}

void NetCollectives::Receive(int member, std::byte* bytes, size_t size, BulkBatch& batch) {
  lane_.Receive(members_[static_cast<size_t>(member)], bytes, size, batch);
}

std::byte* NetCollectives::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(new std::byte[bytes]);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

bool NetCollectives::IsInlined(const Operation& operation) const {
  if (BytesOf(operation) > kSmallBytes || size() != group_.world_size()) return false;
  return Reduces(operation.kind) || operation.kind == CollectiveKind::kAllGather ||
         operation.kind == CollectiveKind::kBroadcast;
}

std::string_view NetCollectives::Inlined(const Operation& operation) const {
  if (!IsInlined(operation) || operation.count == 0 ||
      (operation.kind == CollectiveKind::kBroadcast && operation.peer != index_)) {
    return {};
  }
  return {static_cast<const char*>(operation.input), BytesOf(operation)};
}

void NetCollectives::Begin(const Operation& operation) {
  if (!Reduces(operation.kind) || BytesOf(operation) <= kSmallBytes) return;
  Scatter(operation, PiecesOf(operation), 0);
  begun_ = true;
  lane_.Move();
}

absl::Status NetCollectives::RunInlined(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = BytesOf(operation);
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < size(); ++member) {
    const std::string& theirs = group_.Inlined(member);
    inputs.push_back(member == index_ ? InputOf(operation)
                                      : reinterpret_cast<const std::byte*>(theirs.data()));
    const bool gives = operation.kind != CollectiveKind::kBroadcast || member == operation.peer;
    if (member != index_ && theirs.size() != (gives ? bytes : 0)) {
      return group_.Fail(
          absl::StatusCode::kInternal, member,
          absl::StrCat("rank ", member, " announced ", DescribeCall(operation, waiting.sequence),
                       " with ", theirs.size(), " bytes of its array"));
    }
  }
  SHEAF_FAILPOINT("collective.consumed");
  std::byte* const output = OutputOf(operation);
  switch (operation.kind) {
    case CollectiveKind::kAllGather:
      for (int member = 0; member < size(); ++member) {
        CopyBytes(output + static_cast<size_t>(member) * bytes, inputs[static_cast<size_t>(member)],
                  bytes);
      }
      return absl::OkStatus();
    case CollectiveKind::kBroadcast:
      if (operation.peer != index_) {
        CopyBytes(output, inputs[static_cast<size_t>(operation.peer)], bytes);
      }
      return absl::OkStatus();
    default:
      if (Wants(operation, index_)) {
        std::byte* const targets[] = {output};
        sheaf::Reduce(operation.type, operation.op, inputs, targets, operation.count);
      }
      return absl::OkStatus();
  }
}

absl::Status NetCollectives::Run(const Operation& operation, const Waiting& waiting,
                                 const Average& average) {
  average_ = average;
  if (operation.count == 0) return absl::OkStatus();
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return BytesOf(operation) <= kSmallBytes ? ReduceFew(operation, waiting)
                                               : Reduce(operation, waiting);
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
  const size_t each = RoundUpToLine((count + members - 1) / members);
  const size_t begin = std::min(static_cast<size_t>(member) * each, count);
  return {begin, std::min(begin + each, count)};
}

bool NetCollectives::Wants(const Operation& operation, int member) const {
  return operation.kind == CollectiveKind::kAllReduce || member == operation.peer;
}

NetCollectives::Pieces NetCollectives::PiecesOf(const Operation& operation) const {
  const size_t element = SizeOf(operation.type);
  const auto members = static_cast<size_t>(size());
  const size_t slice =
      RoundUpToLine(std::min(kSliceBytes, std::max(kPieceBytes / members, kLineBytes)) / element);
  Pieces pieces;
  pieces.elements = std::min(slice * members, operation.count);
  pieces.count = (operation.count + pieces.elements - 1) / pieces.elements;
  pieces.stride = RoundUpToLine(SliceOf(pieces.elements, 0).size() * element);
  return pieces;
}

// Two pieces are under way: each has a place for the slices that come from all members, and one for
// a result that has none in an output.
std::byte* NetCollectives::ScratchOf(const Pieces& pieces, size_t piece, int member) {
  const auto places = static_cast<size_t>(size() + 1);
  return Scratch(2 * places * pieces.stride) +
         (piece % 2 * places + static_cast<size_t>(member)) * pieces.stride;
}

std::byte* NetCollectives::ResultOf(const Operation& operation, const Pieces& pieces,
                                    size_t piece) {
  if (!Wants(operation, index_)) return ScratchOf(pieces, piece, size());
  const size_t begin = piece * pieces.elements;
  const size_t count = std::min(pieces.elements, operation.count - begin);
  return OutputOf(operation) + (begin + SliceOf(count, index_).begin) * SizeOf(operation.type);
}

void NetCollectives::Scatter(const Operation& operation, const Pieces& pieces, size_t piece) {
  const size_t element = SizeOf(operation.type);
  const size_t begin = piece * pieces.elements;
  const size_t count = std::min(pieces.elements, operation.count - begin);
  const size_t mine = SliceOf(count, index_).size() * element;
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    Receive(member, ScratchOf(pieces, piece, member), mine, scattered_[piece % 2]);
    const Slice theirs = SliceOf(count, member);
    Send(member, InputOf(operation) + (begin + theirs.begin) * element, theirs.size() * element,
         scattered_[piece % 2]);
  }
}

void NetCollectives::ReducePiece(const Operation& operation, const Pieces& pieces, size_t piece) {
  const size_t begin = piece * pieces.elements;
  const Slice mine = SliceOf(std::min(pieces.elements, operation.count - begin), index_);
  if (mine.size() == 0) return;
  std::vector<const std::byte*> sources;
  for (int member = 0; member < size(); ++member) {
    sources.push_back(member == index_
                          ? InputOf(operation) + (begin + mine.begin) * SizeOf(operation.type)
                          : ScratchOf(pieces, piece, member));
  }
  std::byte* const targets[] = {ResultOf(operation, pieces, piece)};
  sheaf::ReduceAndDivide(operation.type, operation.op, sources, targets, mine.size(),
                         average_.divisor, average_.weights);
}

void NetCollectives::Gather(const Operation& operation, const Pieces& pieces, size_t piece) {
  const size_t element = SizeOf(operation.type);
  const size_t begin = piece * pieces.elements;
  const size_t count = std::min(pieces.elements, operation.count - begin);
  const size_t mine = SliceOf(count, index_).size() * element;
  const std::byte* const result = ResultOf(operation, pieces, piece);
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    if (Wants(operation, index_)) {
      const Slice theirs = SliceOf(count, member);
      Receive(member, OutputOf(operation) + (begin + theirs.begin) * element,
              theirs.size() * element, gathered_[piece % 2]);
    }
    if (Wants(operation, member)) Send(member, result, mine, gathered_[piece % 2]);
  }
}

// A pipeline: while the inputs of piece n travel, piece n - 1 is reduced. All members begin the
// transfers in this order, which is that of the bytes on each connection. In place, a result comes
// to where an input was that its sender has received whole.
absl::Status NetCollectives::Reduce(const Operation& operation, const Waiting& waiting) {
  const Pieces pieces = PiecesOf(operation);
  for (size_t turn = 0; turn <= pieces.count; ++turn) {
    if (turn < pieces.count && !std::exchange(begun_, false)) {
      // A result may still leave from the scratch memory of the piece before the last.
      SHEAF_RETURN_IF_ERROR(Await(waiting, gathered_[turn % 2]));
      Scatter(operation, pieces, turn);
    }
    if (turn == 0) continue;
    const size_t piece = turn - 1;
    SHEAF_RETURN_IF_ERROR(Await(waiting, scattered_[piece % 2], BulkLane::Until::kReceived));
    SHEAF_FAILPOINT("collective.consumed");
    ReducePiece(operation, pieces, piece);
    Gather(operation, pieces, piece);
  }
  for (const BulkBatch* batch : {&scattered_[0], &scattered_[1], &gathered_[0], &gathered_[1]}) {
    SHEAF_RETURN_IF_ERROR(Await(waiting, *batch));
  }
  return absl::OkStatus();
}

// Whoever wants the result gets all inputs.
absl::Status NetCollectives::ReduceFew(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = BytesOf(operation);
  const size_t stride = RoundUpToLine(bytes);
  std::byte* const scratch = Scratch(stride * static_cast<size_t>(size()));
  std::vector<const std::byte*> sources;
  BulkBatch batch;
  for (int member = 0; member < size(); ++member) {
    std::byte* const theirs = scratch + stride * static_cast<size_t>(member);
    sources.push_back(member == index_ ? InputOf(operation) : theirs);
    if (member == index_) continue;
    if (Wants(operation, index_)) Receive(member, theirs, bytes, batch);
    if (Wants(operation, member)) Send(member, InputOf(operation), bytes, batch);
  }
  SHEAF_RETURN_IF_ERROR(Await(waiting, batch));
  SHEAF_FAILPOINT("collective.consumed");
  if (Wants(operation, index_)) {
    std::byte* const targets[] = {OutputOf(operation)};
    sheaf::ReduceAndDivide(operation.type, operation.op, sources, targets, operation.count,
                           average_.divisor, average_.weights);
  }
  return absl::OkStatus();
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
    BulkBatch batch;
    std::vector<const std::byte*> sources;
    for (int member = 0; member < size(); ++member) {
      std::byte* const theirs = scratch + static_cast<size_t>(member) * count * element;
      sources.push_back(member == index_ ? block(index_) : theirs);
      if (member == index_) continue;
      Receive(member, theirs, count * element, batch);
      Send(member, block(member), count * element, batch);
    }
    SHEAF_RETURN_IF_ERROR(Await(waiting, batch));
    std::byte* const targets[] = {OutputOf(operation) + begin * element};
    sheaf::ReduceAndDivide(operation.type, operation.op, sources, targets, count, average_.divisor,
                           average_.weights);
  }
  return absl::OkStatus();
}

absl::Status NetCollectives::AllGather(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = BytesOf(operation);
  BulkBatch batch;
  for (int member = 0; member < size(); ++member) {
    std::byte* const block = OutputOf(operation) + static_cast<size_t>(member) * bytes;
    if (member == index_) {
      CopyBytes(block, InputOf(operation), bytes);
    } else {
      Receive(member, block, bytes, batch);
      Send(member, InputOf(operation), bytes, batch);
    }
  }
  return Await(waiting, batch);
}

// Many bytes: the root gives each of the others a slice, which they give each other.
absl::Status NetCollectives::Broadcast(const Operation& operation, const Waiting& waiting) {
  const size_t element = SizeOf(operation.type);
  const int root = operation.peer;
  const bool whole = size() <= 2 || operation.count * element <= kSmallBytes;
  BulkBatch batch;
  if (whole) {
    const size_t bytes = operation.count * element;
    if (index_ != root) Receive(root, OutputOf(operation), bytes, batch);
    for (int member = 0; index_ == root && member < size(); ++member) {
      if (member != root) Send(member, InputOf(operation), bytes, batch);
    }
    return Await(waiting, batch);
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
      Send(member, InputOf(operation) + slice(member).begin * element,
           slice(member).size() * element, batch);
    }
    return Await(waiting, batch);
  }
  const Slice mine = slice(index_);
  std::byte* const output = OutputOf(operation);
  Receive(root, output + mine.begin * element, mine.size() * element, batch);
  SHEAF_RETURN_IF_ERROR(Await(waiting, batch));
  for (int member = 0; member < size(); ++member) {
    if (member == root || member == index_) continue;
    Receive(member, output + slice(member).begin * element, slice(member).size() * element, batch);
    Send(member, output + mine.begin * element, mine.size() * element, batch);
  }
  return Await(waiting, batch);
}

absl::Status NetCollectives::AllToAll(const Operation& operation, const Waiting& waiting) {
  const size_t bytes = BytesOf(operation);
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
  BulkBatch batch;
  for (int member = 0; member < size(); ++member) {
    const auto at = static_cast<size_t>(member);
    if (member == index_) {
      if (inputs[at] != nullptr && outputs[at] != nullptr)
        CopyBytes(outputs[at], inputs[at], bytes);
      continue;
    }
    if (outputs[at] != nullptr) Receive(member, outputs[at], bytes, batch);
    if (inputs[at] != nullptr) Send(member, inputs[at], bytes, batch);
  }
  return Await(waiting, batch);
}

}  // namespace sheaf
