// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Groups of actors (or tasks, or drivers) that reduce and exchange arrays of numbers.
//
//   class Trainer {
//    public:
//     void Join(int world_size, int rank) {
//       group_ = sheaf::collective::Group::Init("train", world_size, rank);
//     }
//     void Step() {
//       Differentiate(gradients_);
//       group_.AllReduce(gradients_, sheaf::collective::Op::kAverage);
//     }
//    private:
//     sheaf::collective::Group group_;
//     std::vector<float> gradients_;
//   };
// Every rank calls the same operations in the same order, with arrays of the same type and size.
// Ranks of one node share memory: arrays of Group::Allocate are reduced where they lie, others are
// copied in chunks. Ranks of several nodes also open TCP connections between the addresses of their
// nodes, while Init runs; both ends prove that they belong to the group, but what follows is not
// encrypted: keep the network of a cluster to itself. float16 and bfloat16 are then rounded once in
// each node, and once between them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "sheaf/errors.h"
#include "sheaf/internal/export.h"

namespace sheaf::inline v1::collective {

// An operation failed on this rank, and on all others. The group is dead then, its arrays hold
// undefined values; Init with the same name forms it anew. Wrong arguments are InvalidArgumentError
// instead, and change nothing.
class SHEAF_API CollectiveError : public Error {
 public:
  // `rank`: the rank whose fault it is.
  CollectiveError(ErrorInfo info, std::optional<int> rank) : Error(std::move(info)), rank_(rank) {}
  ~CollectiveError() override;
  // The rank whose fault it is; none: nobody's.
  std::optional<int> rank() const noexcept { return rank_; }

 private:
  std::optional<int> rank_;
};
// A rank did not come, or did not go on, within the timeout.
class SHEAF_API LateRankError : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
  ~LateRankError() override;
};
// A rank died, left the group, or gave up.
class SHEAF_API LostRankError : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
  ~LostRankError() override;
};
// A rank called another operation, or with another type or size.
class SHEAF_API MismatchError : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
  ~MismatchError() override;
};
// The group failed, or was aborted, before.
class SHEAF_API DeadGroupError : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
  ~DeadGroupError() override;
};

// How arrays become one. Integers wrap around, and their average is rounded towards zero; that of
// uint8 among more than 255 ranks is an error, as uint8 cannot hold what to divide by. Where one rank
// has a NaN the result is a NaN.
enum class Op : uint8_t { kSum, kProduct, kMin, kMax, kAverage };

// The bits of a number that C++20 has no type for. It is reduced as float and rounded once.
struct Float16 {
  uint16_t bits = 0;  // As of IEEE 754 binary16.
};
// The same with the exponent of float.
struct Bfloat16 {
  uint16_t bits = 0;  // The upper half of a float's.
};

// What arrays hold, for operations on plain memory.
enum class DataType : uint8_t {
  kUint8,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};
// The DataType of a type of C++; none: groups do not know it.
template <class T>
inline constexpr std::optional<DataType> kTypeOf = std::nullopt;
template <>
inline constexpr std::optional<DataType> kTypeOf<uint8_t> = DataType::kUint8;
template <>
inline constexpr std::optional<DataType> kTypeOf<std::byte> = DataType::kUint8;
template <>
inline constexpr std::optional<DataType> kTypeOf<int32_t> = DataType::kInt32;
template <>
inline constexpr std::optional<DataType> kTypeOf<int64_t> = DataType::kInt64;
template <>
inline constexpr std::optional<DataType> kTypeOf<Float16> = DataType::kFloat16;
template <>
inline constexpr std::optional<DataType> kTypeOf<Bfloat16> = DataType::kBfloat16;
template <>
inline constexpr std::optional<DataType> kTypeOf<float> = DataType::kFloat32;
template <>
inline constexpr std::optional<DataType> kTypeOf<double> = DataType::kFloat64;

// std::vector, std::array, std::span, SharedArray, ... of one of the types above.
template <class R>
concept Numbers = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                  kTypeOf<std::remove_cv_t<std::ranges::range_value_t<R>>>.has_value();

// Memory of a group for `count` numbers, which all its ranks read and write in place; undefined at
// first. It may outlive the group. After an error a rank that is late may still write to it.
template <class T>
class SharedArray {
 public:
  SharedArray() = default;  // Empty.
  // Made by Group::Allocate().
  SharedArray(std::shared_ptr<std::byte> memory, size_t count)
      : memory_(std::move(memory)), count_(count) {}
  // As of a std::span. What they return is valid while this array, or a copy of it, lives.
  T* data() const noexcept { return reinterpret_cast<T*>(memory_.get()); }
  size_t size() const noexcept { return count_; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + count_; }
  T& operator[](size_t index) const noexcept { return data()[index]; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t count_ = 0;
};

// Of Group::Init; the same on all ranks.
struct GroupOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);            // Of each operation.
  std::chrono::nanoseconds formation_timeout = std::chrono::seconds(30);  // Of Init.
  uint64_t epoch = 0;                    // At least; the ranks agree on the largest.
  size_t arena_bytes = size_t{4} << 30;  // For Allocate. It takes memory as it is allocated.
};

namespace internal {

enum class Kind : uint8_t {
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
struct Call {
  Kind kind = Kind::kBarrier;
  DataType type = DataType::kUint8;
  Op op = Op::kSum;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  int peer = 0;
};
[[noreturn]] SHEAF_API void ThrowSize(const char* operation, size_t got, size_t want);

}  // namespace internal

// An operation that runs on another thread. Its arrays must stay where they are until it is done.
class Work {
 public:
  // Whether it has ended, in whatever way.
  SHEAF_API bool Done() const;
  // Waits for its end. False: it still runs after `timeout`. Throws what the operation would have
  // thrown.
  SHEAF_API bool Wait(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) const;

 private:
  friend class Group;
  std::shared_ptr<void> work_;
};

// One rank of a group; leaves it on destruction. A process may be in several groups. Thread-safe;
// operations of one group run one after the other, sends and receives beside them. Operations throw
// CollectiveError, and InvalidArgumentError for sizes that do not fit, which changes nothing.
class Group {
 public:
  Group() = default;  // In no group.
  // Joins the group as `rank` (0 to `world_size` - 1) and returns when all ranks have come. `name`:
  // of the group, within the job. Throws LateRankError, InvalidArgumentError (no such rank),
  // CollectiveError (the rank is taken, or a node's address cannot be reached).
  SHEAF_API static Group Init(const std::string& name, int world_size, int rank,
                              const GroupOptions& options = {});
  Group(Group&&) noexcept = default;
  Group& operator=(Group&&) noexcept = default;

  // This rank, and how many there are.
  SHEAF_API int rank() const;
  SHEAF_API int world_size() const;
  // Which group of this name it is, as all ranks agreed.
  SHEAF_API uint64_t epoch() const;
  // Whether no operation has failed here.
  SHEAF_API bool healthy() const;
  // Ends what runs, on all ranks, with an error that says `why`. Any thread may call it.
  SHEAF_API void Abort(const std::string& why);

  // Memory for `count` numbers, undefined at first, that is reduced where it lies. Throws
  // CollectiveError when the arena has no room for it.
  template <class T>
  SharedArray<T> Allocate(size_t count) {
    static_assert(kTypeOf<T>.has_value(), "a type of numbers that groups know");
    return SharedArray<T>(AllocateBytes(count * sizeof(T)), count);
  }

  // Each rank gets the reduction of all ranks' arrays; in place, or from `input` to `output` of the
  // same size.
  template <Numbers A>
  void AllReduce(A&& array, Op op = Op::kSum) {
    Run(Of(internal::Kind::kAllReduce, array, array, std::ranges::size(array), op));
  }
  template <Numbers A, Numbers B>
  void AllReduce(const A& input, B&& output, Op op = Op::kSum) {
    Want("AllReduce", std::ranges::size(output), std::ranges::size(input));
    Run(Of(internal::Kind::kAllReduce, input, output, std::ranges::size(input), op));
  }
  // The same in place, beside what the caller goes on with.
  template <Numbers A>
  Work StartAllReduce(A&& array, Op op = Op::kSum) {
    return Start(Of(internal::Kind::kAllReduce, array, array, std::ranges::size(array), op));
  }
  // Rank `root` gets the reduction of all ranks' arrays, in place; those of the others stay.
  template <Numbers A>
  void Reduce(A&& array, int root, Op op = Op::kSum) {
    Run(Of(internal::Kind::kReduce, array, array, std::ranges::size(array), op, root));
  }
  // Rank r gets block r of the reduction. `input` has world_size blocks of the size of `output`.
  template <Numbers A, Numbers B>
  void ReduceScatter(const A& input, B&& output, Op op = Op::kSum) {
    Want("ReduceScatter", std::ranges::size(input), std::ranges::size(output) * Ranks());
    Run(Of(internal::Kind::kReduceScatter, input, output, std::ranges::size(output), op));
  }
  // Each rank gets the arrays of all, in their order. `output` has world_size blocks of the size of
  // `input`.
  template <Numbers A, Numbers B>
  void AllGather(const A& input, B&& output) {
    Want("AllGather", std::ranges::size(output), std::ranges::size(input) * Ranks());
    Run(Of(internal::Kind::kAllGather, input, output, std::ranges::size(input)));
  }
  // Each rank gets the array of rank `root`.
  template <Numbers A>
  void Broadcast(A&& array, int root) {
    Run(Of(internal::Kind::kBroadcast, array, array, std::ranges::size(array), Op::kSum, root));
  }
  // Block r of `input` goes to rank r, and block r of `output` came from it.
  template <Numbers A, Numbers B>
  void AllToAll(const A& input, B&& output) {
    Want("AllToAll", std::ranges::size(output), std::ranges::size(input));
    Want("AllToAll", std::ranges::size(input), std::ranges::size(input) / Ranks() * Ranks());
    Run(Of(internal::Kind::kAllToAll, input, output, std::ranges::size(input) / Ranks()));
  }
  // To and from one rank: each Send meets a Receive of the same size there, in order.
  template <Numbers A>
  void Send(const A& array, int to) {
    Run({internal::Kind::kSend, TypeOf<A>(), Op::kSum, std::ranges::data(array), nullptr,
         std::ranges::size(array), to});
  }
  template <Numbers A>
  void Receive(A&& array, int from) {
    Run({internal::Kind::kReceive, TypeOf<A>(), Op::kSum, nullptr, std::ranges::data(array),
         std::ranges::size(array), from});
  }
  // Returns when all ranks have called it.
  void Barrier() { Run({}); }

  // The same on plain memory of `count` numbers.
  void AllReduce(const void* input, void* output, size_t count, DataType type, Op op = Op::kSum) {
    Run({internal::Kind::kAllReduce, type, op, input, output, count, 0});
  }
  void Broadcast(void* array, size_t count, DataType type, int root) {
    Run({internal::Kind::kBroadcast, type, Op::kSum, array, array, count, root});
  }

 private:
  template <class A>
  static constexpr DataType TypeOf() {
    return *kTypeOf<std::remove_cv_t<std::ranges::range_value_t<A>>>;
  }
  template <class A, class B>
  static internal::Call Of(internal::Kind kind, const A& input, B& output, size_t count,
                           Op op = Op::kSum, int peer = 0) {
    static_assert(TypeOf<A>() == TypeOf<B>(), "input and output hold the same type of numbers");
    return {kind,  TypeOf<A>(), op, std::ranges::data(input), std::ranges::data(output),
            count, peer};
  }
  size_t Ranks() const { return static_cast<size_t>(world_size()); }
  static void Want(const char* operation, size_t got, size_t want) {
    if (got != want) internal::ThrowSize(operation, got, want);
  }
  SHEAF_API void Run(const internal::Call& call);
  SHEAF_API Work Start(const internal::Call& call);
  SHEAF_API std::shared_ptr<std::byte> AllocateBytes(size_t bytes);

  friend class GradientReducer;
  std::shared_ptr<struct GroupState> state_;
};

}  // namespace sheaf::inline v1::collective
