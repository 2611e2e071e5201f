// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A fixed group of ranks that exchange and reduce arrays. Every rank calls the same operations in
// the same order, with the same type, count, reduction and root; what differs is found before any
// data moves, and is an error on every rank.
//
// Errors. Each has a code, and most name a rank (RankOf):
//   kInvalidArgument    what this rank asked for is wrong by itself (a root of 7 among 4 ranks):
//                       the group is as before; or a rank called something else: the group is dead.
//   kDeadlineExceeded   a rank was late; the message says what it did last.
//   kUnavailable        a rank died, left, or gave up.
//   kCancelled          Abort was called here, or `interrupted` said so while an operation ran.
//   kFailedPrecondition the group is dead from before, or belongs to the parent of this process.
// After an error of an operation that had begun the group is dead on all ranks, and its buffers
// hold undefined values: form a new one under the next epoch.
//
// Thread-safe. Collective operations of one rank run one after the other in the order of their
// calls; sends to and receives from each peer are further such lines of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace sheaf {

enum class DataType : uint8_t {
  kUint8,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};
inline constexpr int kDataTypes = 7;
size_t SizeOf(DataType type);       // Bytes of one element.
const char* NameOf(DataType type);  // "float32"; "unknown type" beyond the last.

// Integers wrap around. float16 and bfloat16 are reduced as float32 and rounded once, to nearest
// even. kAverage of integers is the sum divided towards zero; that of uint8 among more than 255
// ranks is refused, as uint8 cannot hold what to divide by. A NaN makes the result one. uint8 is for
// copies, and for reductions over flags.
enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kAverage };
inline constexpr int kReduceOps = 5;
const char* NameOf(ReduceOp op);

enum class CollectiveKind : uint8_t {
  kBarrier,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kReceive,
};
inline constexpr int kCollectiveKinds = 9;
const char* NameOf(CollectiveKind kind);

inline constexpr Nanos kDefaultCollectiveTimeout = 30 * kSecond;

// One call. `count` is in elements; what it counts:
//   kAllReduce, kReduce, kBroadcast, kSend, kReceive: all of the array.
//   kReduceScatter: the output; the input has world_size times as many.
//   kAllGather: the input; the output has world_size times as many.
//   kAllToAll: one block; input and output have world_size of them.
// Input and output may be the same array, or (kReduceScatter, kAllGather) the smaller may be this
// rank's block of the larger; they do not overlap otherwise, and not at all for kAllToAll.
// kBroadcast, kSend and kReceive take `output` of the receivers and `input` of the sender.
struct Operation {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  int peer = 0;  // The root; of kSend and kReceive the other rank.
  Nanos timeout = kDefaultCollectiveTimeout;
};

// An operation that runs on another thread. Its buffers are untouched by others until it is done.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool Done() const = 0;
  // The status of the operation. kDeadlineExceeded: it is still running after `timeout`.
  // kCancelled: `interrupted` of the group said so; it still runs.
  virtual absl::Status Wait(Nanos timeout = kForever) = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual uint64_t epoch() const = 0;
  virtual const std::string& name() const = 0;

  // Runs `operation` on this thread, after all that was started before.
  virtual absl::Status Run(const Operation& operation) = 0;
  // The same on another thread; returns at once.
  virtual std::shared_ptr<Work> Start(const Operation& operation) = 0;
  // Ends all operations of all ranks with an error that says `why`. Idempotent.
  virtual void Abort(absl::string_view why) = 0;
  // OK while no operation has failed.
  virtual absl::Status Health() const = 0;
  // Memory that the other ranks read and write in place, aligned to 64 bytes. It stays mapped as
  // long as the pointer or the group lives. After an error a rank that is late may still write to
  // it. kResourceExhausted: no room.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) = 0;

  absl::Status AllReduce(const void* input, void* output, size_t count, DataType type,
                         ReduceOp op = ReduceOp::kSum, Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({CollectiveKind::kAllReduce, type, op, input, output, count, 0, timeout});
  }
  // `output` counts at the root only.
  absl::Status Reduce(const void* input, void* output, size_t count, DataType type, int root,
                      ReduceOp op = ReduceOp::kSum, Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({CollectiveKind::kReduce, type, op, input, output, count, root, timeout});
  }
  absl::Status ReduceScatter(const void* input, void* output, size_t count, DataType type,
                             ReduceOp op = ReduceOp::kSum,
                             Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({CollectiveKind::kReduceScatter, type, op, input, output, count, 0, timeout});
  }
  absl::Status AllGather(const void* input, void* output, size_t count, DataType type,
                         Nanos timeout = kDefaultCollectiveTimeout) {
    return Run(
        {CollectiveKind::kAllGather, type, ReduceOp::kSum, input, output, count, 0, timeout});
  }
  absl::Status Broadcast(void* array, size_t count, DataType type, int root,
                         Nanos timeout = kDefaultCollectiveTimeout) {
    return Run(
        {CollectiveKind::kBroadcast, type, ReduceOp::kSum, array, array, count, root, timeout});
  }
  absl::Status AllToAll(const void* input, void* output, size_t count, DataType type,
                        Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({CollectiveKind::kAllToAll, type, ReduceOp::kSum, input, output, count, 0, timeout});
  }
  // Waits until the receiver has it, or may return earlier if it was copied.
  absl::Status Send(const void* input, size_t count, DataType type, int to,
                    Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({CollectiveKind::kSend, type, ReduceOp::kSum, input, nullptr, count, to, timeout});
  }
  absl::Status Receive(void* output, size_t count, DataType type, int from,
                       Nanos timeout = kDefaultCollectiveTimeout) {
    return Run(
        {CollectiveKind::kReceive, type, ReduceOp::kSum, nullptr, output, count, from, timeout});
  }
  absl::Status Barrier(Nanos timeout = kDefaultCollectiveTimeout) {
    return Run({.timeout = timeout});
  }
};

struct CommunicatorOptions {
  std::string name = "default";
  int rank = 0;
  int world_size = 1;
  // At least this; the ranks agree on the largest that one of them asks for.
  uint64_t epoch = 0;
  size_t arena_bytes = size_t{4} << 30;  // For Allocate; address space, memory only where used.
  // Asked before so much memory is taken; kResourceExhausted: there is not so much. Empty: not
  // asked.
  std::function<absl::Status(size_t bytes)> check_memory{};
  Nanos formation_timeout = kDefaultCollectiveTimeout;
  // Of the cluster, where this rank is: ranks of one node of one machine share memory, others talk
  // over the network. Without blanks.
  std::string node{};
  std::string host = "127.0.0.1";  // This node's address, as the other nodes know it.
  // Asked each 100 ms, or more often, by threads that wait in Run or Work::Wait; true: give up.
  std::function<bool()> interrupted{};
};

// The rank that an error of a group names; none: the error is this rank's own.
std::optional<int> RankOf(const absl::Status& status);
absl::Status WithRank(absl::Status status, int rank);

// kInvalidArgument: `operation` cannot be run by rank `rank` of `world_size`, whatever others do.
absl::Status CheckOperation(const Operation& operation, int rank, int world_size);
// "all_reduce (float32 x 1024, sum)".
std::string Describe(const Operation& operation);

}  // namespace sheaf
