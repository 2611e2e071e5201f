// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The table of values: every operation, type, reduction, size and kind of memory, for each
// implementation, with ranks as threads of this process. What needs processes is in
// communicator_faults_test.cc.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random.h"
#include "collective/fake_rendezvous.h"
#include "collective/implementations_for_test.h"
#include "collective/rank_page.h"
#include "collective/value_table_for_test.h"

namespace sheaf {
namespace {

constexpr size_t kArena = 64 << 20;
using enum Implementation;
using testing::Copies;
using testing::Given;
using testing::Reductions;

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
    for (size_t i = 0; i < count; ++i) testing::Store(type_, value(i), at(from + i));
  }
  template <class Value>
  absl::Status Check(size_t from, size_t count, Value value, const char* what) const {
    return testing::CheckElements(type_, at(from), count, value, what);
  }

 private:
  DataType type_;
  std::shared_ptr<std::byte> kept_;
  std::vector<std::byte> private_;
  std::byte* data_ = nullptr;
};

// How the table gets its arrays.
auto ArraysOf(Communicator& group, bool in_arena) {
  return [&group, in_arena](DataType type, size_t count) {
    return Array(group, type, count, in_arena);
  };
}

// Each rank sends to the next one, the even ones first.
absl::Status RoundTheRing(Communicator& group, DataType type, size_t count, bool in_arena) {
  const int world = group.world_size();
  const int rank = group.rank();
  if (world == 1) return absl::OkStatus();
  Array input(group, type, count, in_arena), output(group, type, count, in_arena);
  input.Fill(0, count, [&](size_t i) { return Given(rank, i); });
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  if (rank % 2 == 0) SHEAF_RETURN_IF_ERROR(group.Send(input.data(), count, type, next));
  SHEAF_RETURN_IF_ERROR(group.Receive(output.data(), count, type, previous));
  if (rank % 2 == 1) SHEAF_RETURN_IF_ERROR(group.Send(input.data(), count, type, next));
  return output.Check(0, count, [&](size_t i) { return Given(previous, i); }, "recv");
}

absl::Status AllCopies(Communicator& group, DataType type, size_t count, bool in_arena) {
  SHEAF_RETURN_IF_ERROR(Copies(group, type, count, ArraysOf(group, in_arena)));
  return RoundTheRing(group, type, count, in_arena);
}

TEST_CASE("every reduction, type and size gives the right values", "[table]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const int world = GENERATE(1, 2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      for (int type = 0; type < kDataTypes; ++type) {
        for (int op = 0; op < kReduceOps; ++op) {
          for (size_t count : {0, 1, 7, 1001}) {
            SHEAF_RETURN_IF_ERROR(Reductions(group, static_cast<DataType>(type),
                                             static_cast<ReduceOp>(op), count,
                                             ArraysOf(group, in_arena)));
          }
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("every copy gives the right values", "[table]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const int world = GENERATE(1, 2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      for (int type = 0; type < kDataTypes; ++type) {
        for (size_t count : {0, 1, 7, 1001}) {
          SHEAF_RETURN_IF_ERROR(AllCopies(group, static_cast<DataType>(type), count, in_arena));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("arrays of many chunks go through the pipeline", "[table]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const int world = GENERATE(2, 3, 4);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      // Seven chunks and a bit: the slots are used again.
      for (size_t count : {kSlotBytes * 7 / 4 + 13, kSlotBytes / 4}) {
        SHEAF_RETURN_IF_ERROR(Reductions(group, DataType::kFloat32, ReduceOp::kSum, count,
                                         ArraysOf(group, in_arena)));
        SHEAF_RETURN_IF_ERROR(AllCopies(group, DataType::kFloat32, count, in_arena));
      }
      SHEAF_RETURN_IF_ERROR(Reductions(group, DataType::kFloat16, ReduceOp::kSum, kSlotBytes + 5,
                                       ArraysOf(group, in_arena)));
    }
    return absl::OkStatus();
  });
}

TEST_CASE("operations of few and of many chunks follow each other", "[table]") {
  const int world = GENERATE(2, 3, 6);  // Of which the last has fewer slots.
  AsRanks(kShm, world, [&](Communicator& group) -> absl::Status {
    SeededRandom random(7);  // The same numbers on all ranks.
    for (int round = 0; round < 60; ++round) {
      // Up to twice as many chunks as there are slots, and mostly few.
      const size_t chunks =
          random.Next() % 8 != 0 ? random.Next() % 6 + 1 : random.Next() % (2 * kMaxSlots) + 1;
      const size_t count = chunks * kSlotBytes / 4 - random.Next() % 1000;
      std::vector<int32_t> array(count, group.rank() + round);
      SHEAF_RETURN_IF_ERROR(group.AllReduce(array.data(), array.data(), count, DataType::kInt32));
      const int sum = world * (world - 1) / 2 + world * round;
      if (std::any_of(array.begin(), array.end(), [&](int32_t value) { return value != sum; })) {
        return absl::InternalError(absl::StrCat("wrong sum in round ", round));
      }
      if (round % 3 != 0) continue;
      const int root = round % world;
      array.assign(count, group.rank() == root ? round : -1);
      SHEAF_RETURN_IF_ERROR(group.Broadcast(array.data(), count, DataType::kInt32, root));
      if (std::count(array.begin(), array.end(), round) != static_cast<ptrdiff_t>(count)) {
        return absl::InternalError(absl::StrCat("wrong array in round ", round));
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("arrays of few bytes and of a few more give the right values", "[table]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const int world = GENERATE(2, 3);
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (bool in_arena : KindsOfMemory(implementation)) {
      // About 16 KiB, up to which arrays travel with the calls.
      for (size_t count : {4095, 4096, 4097}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
          SHEAF_RETURN_IF_ERROR(
              Reductions(group, DataType::kFloat32, op, count, ArraysOf(group, in_arena)));
        }
        SHEAF_RETURN_IF_ERROR(AllCopies(group, DataType::kFloat32, count, in_arena));
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("an average of 16 bits is right wherever it fits, though the sum does not") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const int world = GENERATE(2, 3, 4, 5);  // Nodes with as many ranks, and with one more.
  AsRanks(implementation, world, [&](Communicator& group) -> absl::Status {
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      // The largest that float16 holds; one array goes with the calls, one in pieces.
      for (const size_t count : {size_t{9}, size_t{40'001}}) {
        const double most = type == DataType::kFloat16 ? 65504 : 65280;
        const auto given = [&](size_t i) {
          return group.rank() == static_cast<int>(i % 2) ? most / 2 : most;
        };
        const auto average = [&](size_t) { return most - most / 2 / world; };
        Array input(group, type, count, false), output(group, type, count, false);
        input.Fill(0, count, given);
        SHEAF_RETURN_IF_ERROR(
            group.AllReduce(input.data(), output.data(), count, type, ReduceOp::kAverage));
        SHEAF_RETURN_IF_ERROR(output.Check(0, count, average, "average"));
        const int root = world - 1;
        SHEAF_RETURN_IF_ERROR(
            group.Reduce(input.data(), output.data(), count, type, root, ReduceOp::kAverage));
        if (group.rank() == root) SHEAF_RETURN_IF_ERROR(output.Check(0, count, average, "reduce"));
      }
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
        SHEAF_RETURN_IF_ERROR(Reductions(group, DataType::kFloat32, ReduceOp::kSum, count,
                                         ArraysOf(group, in_arena)));
        SHEAF_RETURN_IF_ERROR(AllCopies(group, DataType::kInt32, count, in_arena));
      }
    }
    return absl::OkStatus();
  });
}

TEST_CASE("operations that were started run in their order, beside the thread that started them") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
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
    SHEAF_RETURN_IF_ERROR(group.AllReduce(&last, &last, 1, DataType::kFloat32));
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (!works[i]->Done()) return absl::InternalError("a later call was faster");
      SHEAF_RETURN_IF_ERROR(works[i]->Wait());
      if (arrays[i][999] != static_cast<float>(3 * i)) return absl::InternalError("wrong sum");
    }
    return last == 3 ? absl::OkStatus() : absl::InternalError("wrong last sum");
  });
}

TEST_CASE("started sends and receives of all pairs get past each other") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
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
    for (const auto& work : works) SHEAF_RETURN_IF_ERROR(work->Wait());
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != group.rank() && in[peer][count - 1] != peer * 10 + group.rank()) {
        return absl::InternalError("wrong message");
      }
    }
    return absl::OkStatus();
  });
}

// How often the threads of this process that are called `name` went to sleep so far.
uint64_t SleepsOf(const std::string& name) {
  uint64_t sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool is_named = false;
    for (std::string line; std::getline(status, line);) {
      if (line == "Name:\t" + name) is_named = true;
      constexpr std::string_view kVoluntary = "voluntary_ctxt_switches:";
      if (is_named && line.starts_with(kVoluntary)) {
        sleeps += std::stoull(line.substr(kVoluntary.size()));
      }
    }
  }
  return sleeps;
}

TEST_CASE("an operation between nodes wakes no thread but those that wait for it") {
  const auto implementation = GENERATE(kApart, kHierarchical);
  constexpr int kOperations = 500;
  AsRanks(implementation, 2, [](Communicator& group) -> absl::Status {
    std::vector<float> few(1000), many(100'000);
    const auto once = [&]() -> absl::Status {
      SHEAF_RETURN_IF_ERROR(
          group.AllReduce(few.data(), few.data(), few.size(), DataType::kFloat32));
      return group.AllReduce(many.data(), many.data(), many.size(), DataType::kFloat32);
    };
    SHEAF_RETURN_IF_ERROR(once());
    const Nanos began = MonotonicNow();
    const uint64_t before = SleepsOf("peer-links");
    for (int i = 0; i < kOperations; ++i) SHEAF_RETURN_IF_ERROR(once());
    const uint64_t sleeps = SleepsOf("peer-links") - before;
    // Of both ranks: each looks every 50 ms whether it is needed.
    const auto looks = static_cast<uint64_t>((MonotonicNow() - began) / (50 * kMillisecond));
    if (sleeps <= 2 * (looks + 10)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the threads of the links slept ", sleeps,
                                            " times beside ", kOperations, " operations"));
  });
}

TEST_CASE("all ranks get the same bits, in the arena or not") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  AsRanks(implementation, 3, [](Communicator& group) -> absl::Status {
    std::vector<float> values(5000);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0f / static_cast<float>(i * 7 + static_cast<size_t>(group.rank()) + 1);
    }
    std::shared_ptr<std::byte> shared = *group.Allocate(values.size() * 4);
    std::memcpy(shared.get(), values.data(), values.size() * 4);
    SHEAF_RETURN_IF_ERROR(
        group.AllReduce(shared.get(), shared.get(), values.size(), DataType::kFloat32));
    SHEAF_RETURN_IF_ERROR(
        group.AllReduce(values.data(), values.data(), values.size(), DataType::kFloat32));
    if (std::memcmp(shared.get(), values.data(), values.size() * 4) != 0) {
      return absl::InternalError("the arena's result has other bits");
    }
    std::vector<float> of_first = values;
    SHEAF_RETURN_IF_ERROR(group.Broadcast(of_first.data(), of_first.size(), DataType::kFloat32, 0));
    return of_first == values ? absl::OkStatus() : absl::InternalError("rank 0 has other bits");
  });
}

TEST_CASE("an average of uint8 over more ranks than it can count is refused") {
  Operation operation{.kind = CollectiveKind::kAllReduce, .op = ReduceOp::kAverage};
  operation.input = operation.output = &operation;
  operation.count = 1;
  CHECK(CheckOperation(operation, 0, 255).ok());
  for (const int world : {256, 257, 1000}) {  // As uint8: by 0, by 1 and by 232.
    const absl::Status status = CheckOperation(operation, 0, world);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("want int32"));
  }
  operation.op = ReduceOp::kMax;
  CHECK(CheckOperation(operation, 0, 256).ok());
  operation.op = ReduceOp::kAverage;
  operation.type = DataType::kInt32;
  CHECK(CheckOperation(operation, 0, 256).ok());
}

TEST_CASE("wrong arguments are refused, and the group goes on") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
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
    SHEAF_RETURN_IF_ERROR(group.AllReduce(&value, &value, 1, DataType::kFloat32));
    return value == 2 ? group.Health() : absl::InternalError("wrong sum");
  });
}

TEST_CASE("an array outlives its group") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
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

TEST_CASE("memory that is not there is an error where it is asked for, and no kill later") {
  const auto implementation = GENERATE(kShm, kHierarchical);
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  size_t left = size_t{16} << 20;
  CommunicatorOptions options{.name = "short", .arena_bytes = size_t{1} << 30};
  options.check_memory = [&](size_t bytes) {
    if (bytes > left) return absl::ResourceExhaustedError("only a little is left");
    left -= bytes;
    return absl::OkStatus();
  };
  auto group = FormFor(implementation, options, rendezvous);
  REQUIRE(group.ok());
  CHECK(left < size_t{16} << 20);  // Its own pages are counted.
  const absl::Status full = (*group)->Allocate(size_t{128} << 20).status();
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()), Catch::Contains("only a little is left"));
  const size_t before = left;
  auto kept = (*group)->Allocate(1 << 20);
  CHECK(kept.ok());
  CHECK(left == before - (1 << 20));
  kept = absl::CancelledError();
  CHECK((*group)->Allocate(1 << 20).ok());  // Memory that was used before is there.
  CHECK(left == before - (1 << 20));
  left = 0;
  CHECK(absl::IsResourceExhausted(FormFor(implementation, options, rendezvous).status()));
}

TEST_CASE("a forked child that changes an array changes no array of its parent's") {
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  auto group = FormFor(kShm, {.name = "forks", .arena_bytes = 1 << 20}, rendezvous);
  REQUIRE(group.ok());
  const std::shared_ptr<std::byte> array = *(*group)->Allocate(10000);
  std::memset(array.get(), 7, 10000);
  const pid_t child = fork();
  if (child == 0) {
    const bool reads = array.get()[9999] == std::byte{7};
    std::memset(array.get(), 8, 10000);
    _exit(reads && array.get()[0] == std::byte{8} ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(array.get()[0] == std::byte{7});
  CHECK(array.get()[9999] == std::byte{7});
}

}  // namespace
}  // namespace sheaf
