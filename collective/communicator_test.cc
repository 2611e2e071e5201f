// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The table of values: every operation, type, reduction, size and kind of memory, for each
// implementation, with ranks as threads of this process. What needs processes is in
// communicator_faults_test.cc.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "collective/fake_rendezvous.h"
#include "collective/implementations_for_test.h"
#include "collective/rank_page.h"

namespace sheaf {
namespace {

constexpr size_t kArena = 64 << 20;
using enum Implementation;

// Which kinds of memory there are to try: in the arena and private.
std::vector<bool> KindsOfMemory(Implementation implementation) {
  if (implementation == kShm) return {true, false};
  return {implementation == kHierarchical};
}

// Runs `body` as each of `world` ranks; all must return OK.
template <class Body>
void AsRanks(Implementation implementation, int world, Body body, size_t arena_bytes = kArena) {
  FakeMeetingPlace place;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      FakeRendezvous rendezvous(place);
      CommunicatorOptions options{
          .name = "table", .rank = rank, .world_size = world, .arena_bytes = arena_bytes};
      auto group = FormFor(implementation, options, rendezvous);
      absl::Status status = group.ok() ? body(**group) : group.status();
      // Nobody leaves while others are still in its arrays' checks.
      if (status.ok()) status = (*group)->Barrier();
      errors[static_cast<size_t>(rank)] = status.ok() ? "" : status.ToString();
      if (group.ok() && !status.ok()) (*group)->Abort(status.message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < world; ++rank) {
    INFO(implementation << ", rank " << rank << " of " << world);
    REQUIRE(errors[static_cast<size_t>(rank)] == "");
  }
}

// Numbers as each type stores them; float16 and bfloat16 hold the small integers exactly.
void Store(DataType type, double value, std::byte* to) {
  const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  switch (type) {
    case DataType::kUint8:
      return put(static_cast<uint8_t>(value));
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(static_cast<int64_t>(value));
    case DataType::kFloat32:
      return put(single);
    case DataType::kFloat64:
      return put(value);
    case DataType::kBfloat16:
      return put(static_cast<uint16_t>(bits >> 16));
    case DataType::kFloat16:
      return put(static_cast<uint16_t>(
          value == 0 ? 0
                     : (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112u << 10)) % 0x8000));
  }
}

double Expected(ReduceOp op, DataType type, const std::vector<double>& values) {
  double result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    switch (op) {
      case ReduceOp::kProduct:
        result *= values[i];
        break;
      case ReduceOp::kMin:
        result = std::min(result, values[i]);
        break;
      case ReduceOp::kMax:
        result = std::max(result, values[i]);
        break;
      default:
        result += values[i];
    }
  }
  if (op == ReduceOp::kAverage) {
    result /= static_cast<double>(values.size());
    if (type <= DataType::kInt64) result = std::trunc(result);
  }
  return result;
}

// What rank `rank` gives as element `index`: 1 to 4, so that products of four stay exact.
double Given(int rank, size_t index) { return 1 + static_cast<double>((index + rank * 3) % 4); }

// Averages that float16 and bfloat16 cannot hold are compared by value.
double Load(DataType type, const std::byte* from) {
  const auto get = [&]<class T>(T number) {
    std::memcpy(&number, from, sizeof number);
    return number;
  };
  switch (type) {
    case DataType::kUint8:
      return get(uint8_t{});
    case DataType::kInt32:
      return get(int32_t{});
    case DataType::kInt64:
      return static_cast<double>(get(int64_t{}));
    case DataType::kFloat32:
      return static_cast<double>(get(float{}));
    case DataType::kFloat64:
      return get(double{});
    case DataType::kBfloat16: {
      const uint32_t bits = static_cast<uint32_t>(get(uint16_t{})) << 16;
      float single;
      std::memcpy(&single, &bits, sizeof single);
      return static_cast<double>(single);
    }
    case DataType::kFloat16: {
      const uint16_t half = get(uint16_t{});
      const int exponent = half >> 10 & 31;
      return std::ldexp(exponent == 0 ? half & 1023 : 1024 + (half & 1023),
                        (exponent == 0 ? 1 : exponent) - 25);
    }
  }
  return 0;
}

bool Near(DataType type, double got, double wanted) {
  const double unit = type == DataType::kBfloat16  ? 1.0 / 128
                      : type == DataType::kFloat16 ? 1.0 / 1024
                      : type == DataType::kFloat32 ? 1e-6
                                                   : 0;
  return std::abs(got - wanted) <= unit * std::abs(wanted);
}

// An array of this rank, in the arena or private.
class Array {
 public:
  Array(Communicator& group, DataType type, size_t count, bool in_arena) : type_(type) {
    const size_t bytes = count * SizeOf(type);
    if (in_arena) {
      kept_ = *group.Allocate(bytes);
      data_ = kept_.get();
    } else {
      private_.resize(bytes + 1);
      data_ = private_.data();
    }
    std::memset(data_, 0x55, bytes);
  }
  std::byte* data() const { return data_; }
  std::byte* at(size_t index) const { return data_ + index * SizeOf(type_); }
  template <class Value>
  void Fill(size_t from, size_t count, Value value) {
    for (size_t i = 0; i < count; ++i) Store(type_, value(i), at(from + i));
  }
  // The first element that is not `value(i)`, or -1.
  template <class Value>
  absl::Status Check(size_t from, size_t count, Value value, const char* what) const {
    for (size_t i = 0; i < count; ++i) {
      const double got = Load(type_, at(from + i));
      if (Near(type_, got, value(i))) continue;
      return absl::InternalError(absl::StrCat(what, " ", NameOf(type_), " x ", count, ": element ",
                                              i, " is ", got, ", want ", value(i)));
    }
    return absl::OkStatus();
  }

 private:
  DataType type_;
  std::shared_ptr<std::byte> kept_;
  std::vector<std::byte> private_;
  std::byte* data_ = nullptr;
};

#define RETURN_IF(expression)                             \
  do {                                                    \
    if (absl::Status s = (expression); !s.ok()) return s; \
  } while (false)

// One reduction of `count` elements in all its forms.
absl::Status Reductions(Communicator& group, DataType type, ReduceOp op, size_t count,
                        bool in_arena) {
  const int world = group.world_size();
  const int rank = group.rank();
  const auto reduced = [&](size_t index) {
    std::vector<double> values;
    for (int r = 0; r < world; ++r) values.push_back(Given(r, index));
    return Expected(op, type, values);
  };
  {
    Array input(group, type, count, in_arena), output(group, type, count, in_arena);
    input.Fill(0, count, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(group.AllReduce(input.data(), output.data(), count, type, op));
    RETURN_IF(output.Check(0, count, reduced, NameOf(op)));
    RETURN_IF(group.AllReduce(input.data(), input.data(), count, type, op));
    RETURN_IF(input.Check(0, count, reduced, "in place"));
  }
  {
    const int root = world - 1;
    Array array(group, type, count, in_arena);
    array.Fill(0, count, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(
        group.Reduce(array.data(), rank == root ? array.data() : nullptr, count, type, root, op));
    RETURN_IF(array.Check(
        0, count, [&](size_t i) { return rank == root ? reduced(i) : Given(rank, i); }, "reduce"));
  }
  {
    Array input(group, type, count * world, in_arena), output(group, type, count, in_arena);
    input.Fill(0, count * world, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(group.ReduceScatter(input.data(), output.data(), count, type, op));
    const auto mine = [&](size_t i) { return reduced(count * rank + i); };
    RETURN_IF(output.Check(0, count, mine, "reduce_scatter"));
    RETURN_IF(group.ReduceScatter(input.data(), input.at(count * rank), count, type, op));
    RETURN_IF(input.Check(count * rank, count, mine, "reduce_scatter in place"));
  }
  return absl::OkStatus();
}

absl::Status Copies(Communicator& group, DataType type, size_t count, bool in_arena) {
  const int world = group.world_size();
  const int rank = group.rank();
  const auto of_all = [&](size_t i) { return Given(static_cast<int>(i / count), i % count); };
  {
    Array input(group, type, count, in_arena), output(group, type, count * world, in_arena);
    input.Fill(0, count, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(group.AllGather(input.data(), output.data(), count, type));
    RETURN_IF(output.Check(0, count * world, of_all, "all_gather"));
    Array whole(group, type, count * world, in_arena);
    whole.Fill(count * rank, count, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(group.AllGather(whole.at(count * rank), whole.data(), count, type));
    RETURN_IF(whole.Check(0, count * world, of_all, "all_gather in place"));
  }
  for (int root = 0; root < world; ++root) {
    Array array(group, type, count, in_arena);
    if (rank == root) array.Fill(0, count, [&](size_t i) { return Given(root, i); });
    RETURN_IF(group.Broadcast(array.data(), count, type, root));
    RETURN_IF(array.Check(0, count, [&](size_t i) { return Given(root, i); }, "broadcast"));
  }
  {
    Array input(group, type, count * world, in_arena), output(group, type, count * world, in_arena);
    input.Fill(0, count * world, [&](size_t i) { return Given(rank, i); });
    RETURN_IF(group.AllToAll(input.data(), output.data(), count, type));
    const auto from_all = [&](size_t i) {
      return Given(static_cast<int>(i / count), count * rank + i % count);
    };
    RETURN_IF(output.Check(0, count * world, from_all, "all_to_all"));
  }
  if (world > 1) {  // Around the ring, the even ranks send first.
    Array input(group, type, count, in_arena), output(group, type, count, in_arena);
    input.Fill(0, count, [&](size_t i) { return Given(rank, i); });
    const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
    if (rank % 2 == 0) RETURN_IF(group.Send(input.data(), count, type, next));
    RETURN_IF(group.Receive(output.data(), count, type, previous));
    if (rank % 2 == 1) RETURN_IF(group.Send(input.data(), count, type, next));
    RETURN_IF(output.Check(0, count, [&](size_t i) { return Given(previous, i); }, "recv"));
  }
  return absl::OkStatus();
}

TEST_CASE("every reduction, type and size gives the right values", "[table]") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  const int world = GENERATE(1, 2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      for (int type = 0; type < kDataTypes; ++type) {
        for (int op = 0; op < kReduceOps; ++op) {
          for (size_t count : {0, 1, 7, 1001}) {
            RETURN_IF(Reductions(group, static_cast<DataType>(type), static_cast<ReduceOp>(op),
                                 count, in_arena));
          }
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("every copy gives the right values", "[table]") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  const int world = GENERATE(1, 2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      for (int type = 0; type < kDataTypes; ++type) {
        for (size_t count : {0, 1, 7, 1001}) {
          RETURN_IF(Copies(group, static_cast<DataType>(type), count, in_arena));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("arrays of many chunks go through the pipeline", "[table]") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  const int world = GENERATE(2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      // Seven chunks and a bit: the slots are used again.
      for (size_t count : {kSlotBytes * 7 / 4 + 13, kSlotBytes / 4}) {
        RETURN_IF(Reductions(group, DataType::kFloat32, ReduceOp::kSum, count, in_arena));
        RETURN_IF(Copies(group, DataType::kFloat32, count, in_arena));
      }
      RETURN_IF(Reductions(group, DataType::kFloat16, ReduceOp::kSum, kSlotBytes + 5, in_arena));
    }
    return absl::OkStatus();
  });
}

TEST_CASE("some ranks may have their arrays in the arena and others not", "[table]") {
  const auto implementation = GENERATE(kShm, kHierarchical);
  const int world = GENERATE(2, 3);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (int with_arena = 0; with_arena < group.world_size(); ++with_arena) {
      for (size_t count : {size_t{5}, kSlotBytes * 5 / 4 + 1}) {
        const bool in_arena = group.rank() == with_arena;
        RETURN_IF(Reductions(group, DataType::kFloat32, ReduceOp::kSum, count, in_arena));
        RETURN_IF(Copies(group, DataType::kInt32, count, in_arena));
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("operations that were started run in their order, beside the thread that started them") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  AsRanks(implementation, 3, [](Communicator& group) -> absl::Status {
    std::vector<std::vector<float>> arrays(20, std::vector<float>(1000));
    std::vector<std::shared_ptr<Work>> works;
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::fill(arrays[i].begin(), arrays[i].end(), static_cast<float>(i));
      works.push_back(group.Start({CollectiveKind::kAllReduce, DataType::kFloat32, ReduceOp::kSum,
                                   arrays[i].data(), arrays[i].data(), 1000}));
    }
    // A call comes after all that was started.
    float last = 1;
    RETURN_IF(group.AllReduce(&last, &last, 1, DataType::kFloat32));
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (!works[i]->Done()) return absl::InternalError("a later call was faster");
      RETURN_IF(works[i]->Wait());
      if (arrays[i][999] != static_cast<float>(3 * i)) return absl::InternalError("wrong sum");
    }
    return last == 3 ? absl::OkStatus() : absl::InternalError("wrong last sum");
  });
}

TEST_CASE("started sends and receives of all pairs get past each other") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  AsRanks(implementation, 3, [](Communicator& group) -> absl::Status {
    const size_t count = kPairSlotBytes;  // Four chunks: no sender is done before its receiver.
    std::vector<std::vector<int32_t>> in(3), out(3);
    std::vector<std::shared_ptr<Work>> works;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group.rank()) continue;
      out[peer].assign(count, group.rank() * 10 + peer);
      in[peer].resize(count);
      works.push_back(group.Start({.kind = CollectiveKind::kSend,
                                   .type = DataType::kInt32,
                                   .input = out[peer].data(),
                                   .count = count,
                                   .peer = peer}));
      works.push_back(group.Start({.kind = CollectiveKind::kReceive,
                                   .type = DataType::kInt32,
                                   .output = in[peer].data(),
                                   .count = count,
                                   .peer = peer}));
    }
    for (const auto& work : works) RETURN_IF(work->Wait());
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != group.rank() && in[peer][count - 1] != peer * 10 + group.rank()) {
        return absl::InternalError("wrong message");
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("all ranks get the same bits, in the arena or not") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  AsRanks(implementation, 3, [](Communicator& group) -> absl::Status {
    std::vector<float> values(5000);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0f / static_cast<float>(i * 7 + static_cast<size_t>(group.rank()) + 1);
    }
    std::shared_ptr<std::byte> shared = *group.Allocate(values.size() * 4);
    std::memcpy(shared.get(), values.data(), values.size() * 4);
    RETURN_IF(group.AllReduce(shared.get(), shared.get(), values.size(), DataType::kFloat32));
    RETURN_IF(group.AllReduce(values.data(), values.data(), values.size(), DataType::kFloat32));
    if (std::memcmp(shared.get(), values.data(), values.size() * 4) != 0) {
      return absl::InternalError("the arena's result has other bits");
    }
    std::vector<float> of_first = values;
    RETURN_IF(group.Broadcast(of_first.data(), of_first.size(), DataType::kFloat32, 0));
    return of_first == values ? absl::OkStatus() : absl::InternalError("rank 0 has other bits");
  });
}

TEST_CASE("wrong arguments are refused, and the group goes on") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  AsRanks(implementation, 2, [](Communicator& group) -> absl::Status {
    float value = 1;
    const absl::Status bad[] = {
        group.Broadcast(&value, 1, DataType::kFloat32, 2),
        group.Send(&value, 1, DataType::kFloat32, group.rank()),
        group.AllReduce(nullptr, &value, 1, DataType::kFloat32),
        group.AllReduce(&value, &value, SIZE_MAX / 2, DataType::kFloat32),
        group.AllToAll(&value, &value, 1, DataType::kFloat32),
        group.Barrier(0),
    };
    for (const absl::Status& status : bad) {
      if (!absl::IsInvalidArgument(status)) return absl::InternalError(status.ToString());
    }
    RETURN_IF(group.AllReduce(&value, &value, 1, DataType::kFloat32));
    return value == 2 ? group.Health() : absl::InternalError("wrong sum");
  });
}

TEST_CASE("an array outlives its group") {
  const auto implementation = GENERATE(kShm, kGloo, kHierarchical);
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  std::shared_ptr<std::byte> kept;
  {
    auto group = FormFor(implementation, {.name = "alone", .arena_bytes = 1 << 20}, rendezvous);
    REQUIRE(group.ok());
    CHECK(absl::IsResourceExhausted((*group)->Allocate(2 << 20).status()));
    kept = *(*group)->Allocate(1000);
  }
  std::memset(kept.get(), 7, 1000);
  CHECK(kept.get()[999] == std::byte{7});
}

}  // namespace
}  // namespace sheaf
