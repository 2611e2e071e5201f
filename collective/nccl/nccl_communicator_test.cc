// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Operations on device arrays: values, order, streams and faults, with ranks as threads of this
// process. Each case runs with the stand-in for CUDA and NCCL (tests/nccl/fake_gpu.cc), and those
// of values also with the real ones, "[gpu]", where there is a GPU.
#include "collective/nccl/nccl_communicator.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "collective/fake_rendezvous.h"
#include "collective/nccl/nccl_library.h"
#include "collective/nccl/nccl_rig_for_test.h"
#include "collective/value_table_for_test.h"

namespace sheaf {
namespace {

using testing::Contains;
using testing::Given;
using testing::StandIn;

NcclOptions OptionsOf(int rank, int world, const std::string& name = "table") {
  NcclOptions options;
  options.group.name = name;
  options.group.rank = rank;
  options.group.world_size = world;
  options.folders = testing::WheelFolders();
  return options;
}

// Runs `body` as each of `world` ranks; returns what each said.
template <class Body>
std::vector<absl::Status> StatusesOf(int world, Body body, int devices = 1) {
  FakeMeetingPlace place;
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      FakeRendezvous rendezvous(place);
      NcclOptions options = OptionsOf(rank, world);
      options.device = rank % devices;
      auto group = NewNcclCommunicator(options, rendezvous);
      absl::Status status = group.ok() ? body(**group) : group.status();
      if (group.ok() && status.ok()) status = (*group)->Barrier();
      if (group.ok() && !status.ok()) (*group)->Abort(status.message());
      statuses[static_cast<size_t>(rank)] = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

template <class Body>
void AsRanks(int world, Body body, int devices = 1) {
  const std::vector<absl::Status> statuses = StatusesOf(world, body, devices);
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    INFO("rank " << rank << " of " << world);
    REQUIRE(statuses[rank].ToString() == "OK");
  }
}

// An array in the device's memory, filled and read by copies.
class DeviceArray {
 public:
  DeviceArray(NcclCommunicator& group, DataType type, size_t count)
      : group_(group), type_(type), memory_(*group.Allocate(count * SizeOf(type))) {
    Fill(0, count, [](size_t) { return 99; });
  }
  std::byte* data() const { return memory_.get(); }
  std::byte* at(size_t index) const { return data() + index * SizeOf(type_); }

  template <class Value>
  void Fill(size_t from, size_t count, Value value) {
    std::vector<std::byte> host(count * SizeOf(type_));
    for (size_t i = 0; i < count; ++i)
      testing::Store(type_, value(i), host.data() + i * SizeOf(type_));
    if (count > 0 && !group_.device().CopyTo(at(from), host.data(), host.size()).ok()) abort();
  }
  template <class Value>
  absl::Status Check(size_t from, size_t count, Value value, const char* what) const {
    std::vector<std::byte> host(count * SizeOf(type_));
    if (count > 0) {
      absl::Status status = group_.device().CopyFrom(host.data(), at(from), host.size());
      if (!status.ok()) return status;
    }
    return testing::CheckElements(type_, host.data(), count, value, what);
  }

 private:
  NcclCommunicator& group_;
  const DataType type_;
  const std::shared_ptr<std::byte> memory_;
};

absl::Status Reductions(NcclCommunicator& group, DataType type, ReduceOp op, size_t count) {
  return testing::Reductions(group, type, op, count, [&](DataType of, size_t elements) {
    return DeviceArray(group, of, elements);
  });
}

absl::Status Copies(NcclCommunicator& group, DataType type, size_t count) {
  SHEAF_RETURN_IF_ERROR(testing::Copies(group, type, count, [&](DataType of, size_t elements) {
    return DeviceArray(group, of, elements);
  }));
  const int world = group.world_size();
  const int rank = group.rank();
  if (world == 1) return absl::OkStatus();
  DeviceArray input(group, type, count), output(group, type, count);
  input.Fill(0, count, [&](size_t i) { return Given(rank, i); });
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  // The two directions of a pair, and the pairs, are lines of their own.
  const auto send = group.Start({.kind = CollectiveKind::kSend,
                                 .type = type,
                                 .input = input.data(),
                                 .count = count,
                                 .peer = next});
  SHEAF_RETURN_IF_ERROR(group.Receive(output.data(), count, type, previous));
  SHEAF_RETURN_IF_ERROR(send->Wait());
  return output.Check(0, count, [&](size_t i) { return Given(previous, i); }, "recv");
}

absl::Status Table(NcclCommunicator& group) {
  for (int type = 0; type < kDataTypes; ++type) {
    for (size_t count : {0, 1, 7, 1001}) {
      for (int op = 0; op < kReduceOps; ++op) {
        SHEAF_RETURN_IF_ERROR(
            Reductions(group, static_cast<DataType>(type), static_cast<ReduceOp>(op), count));
      }
      SHEAF_RETURN_IF_ERROR(Copies(group, static_cast<DataType>(type), count));
    }
  }
  return absl::OkStatus();
}

// Many operations under way at once, behind each other, then a call that comes after all.
absl::Status Order(NcclCommunicator& group) {
  std::vector<std::unique_ptr<DeviceArray>> arrays;
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 0; i < 20; ++i) {
    arrays.push_back(std::make_unique<DeviceArray>(group, DataType::kFloat32, 1000));
    arrays.back()->Fill(0, 1000, [&](size_t) { return i; });
    std::byte* const data = arrays.back()->data();
    works.push_back(group.Start(
        {CollectiveKind::kAllReduce, DataType::kFloat32, ReduceOp::kSum, data, data, 1000}));
  }
  SHEAF_RETURN_IF_ERROR(group.Barrier());
  for (int i = 0; i < 20; ++i) {
    if (!works[i]->Done()) return absl::InternalError("a later call was faster");
    SHEAF_RETURN_IF_ERROR(works[i]->Wait());
    SHEAF_RETURN_IF_ERROR(
        arrays[i]->Check(0, 1000, [&](size_t) { return i * group.world_size(); }, "started"));
  }
  return absl::OkStatus();
}

// Groups of one process at once, one of them in a stream that it was given.
void SeveralGroups() {
  FakeMeetingPlace places[2];
  FakeRendezvous first(places[0]), second(places[1]);
  auto plain = NewNcclCommunicator(OptionsOf(0, 1, "first"), first);
  REQUIRE(plain.status().ToString() == "OK");
  const CudaDevice& device = (*plain)->device();
  CudaStream stream = nullptr;
  {
    const CudaDevice::Current current(device);
    REQUIRE(device.library()->cuStreamCreate(&stream, kCudaStreamNonBlocking) == kCudaSuccess);
  }
  NcclOptions options = OptionsOf(0, 1, "second");
  options.stream = stream;
  auto streamed = NewNcclCommunicator(options, second);
  REQUIRE(streamed.status().ToString() == "OK");
  for (NcclCommunicator* group : {plain->get(), streamed->get(), plain->get()}) {
    CHECK(Reductions(*group, DataType::kFloat32, ReduceOp::kSum, 1001).ToString() == "OK");
    CHECK(Order(*group).ToString() == "OK");
  }
  DeviceArray array(**plain, DataType::kInt32, 3);
  CHECK((*plain)
            ->RunAfter({CollectiveKind::kAllReduce, DataType::kInt32, ReduceOp::kSum, array.data(),
                        array.data(), 3},
                       stream)
            .ok());
  CHECK(array.Check(0, 3, [](size_t) { return 99; }, "after a stream").ok());
  streamed->reset();
  const CudaDevice::Current current(device);
  device.library()->cuStreamDestroy_v2(stream);
}

TEST_CASE("every operation on device arrays gives the right values, through the stand-in",
          "[nccl]") {
  const StandIn stand_in;
  AsRanks(GENERATE(1, 2, 3), Table);
}

TEST_CASE("all_to_all is one call where NCCL has it", "[nccl]") {
  const StandIn stand_in(SHEAF_FAKE_NEWER, SHEAF_FAKE_NEWER);
  const auto nccl = nccl::Library::Load();
  REQUIRE(nccl.ok());
  REQUIRE((**nccl)->ncclAlltoAll != nullptr);
  AsRanks(3, Table);
}

TEST_CASE("started operations on device arrays run in their order", "[nccl]") {
  const StandIn stand_in;
  AsRanks(GENERATE(1, 3), Order);
}

TEST_CASE("several groups, with streams of their own and given ones", "[nccl]") {
  const StandIn stand_in;
  SeveralGroups();
}

TEST_CASE("host memory is refused, and the group lives on", "[nccl]") {
  const StandIn stand_in;
  AsRanks(1, [](NcclCommunicator& group) -> absl::Status {
    float value = 1;
    const absl::Status status = group.AllReduce(&value, &value, 1, DataType::kFloat32);
    if (!absl::IsInvalidArgument(status) ||
        !Contains(std::string(status.message()),
                  "all_reduce (float32 x 1, sum): the array lies in host memory")) {
      return absl::InternalError(status.ToString());
    }
    return Reductions(group, DataType::kFloat32, ReduceOp::kSum, 3);
  });
}

TEST_CASE("ranks that call different things learn it before data moves", "[nccl]") {
  const StandIn stand_in;
  const std::vector<absl::Status> statuses =
      StatusesOf(3, [](NcclCommunicator& group) -> absl::Status {
        DeviceArray array(group, DataType::kFloat32, 8);
        absl::Status status =
            group.rank() == 1 ? group.Broadcast(array.data(), 8, DataType::kFloat32, 0)
                              : group.AllReduce(array.data(), array.data(), 8, DataType::kFloat32);
        SHEAF_RETURN_IF_ERROR(array.Check(0, 8, [](size_t) { return 99; }, "moved"));
        if (group.Health().ok() || !absl::IsFailedPrecondition(group.Barrier())) {
          return absl::InternalError("the group lives on");
        }
        return status;
      });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(RankOf(status) == 1);
    CHECK(Contains(status.ToString(),
                   "rank 1 called broadcast (float32 x 8, root 0) #1 where rank 0 called "
                   "all_reduce (float32 x 8, sum) #1"));
  }
}

TEST_CASE("a message of another size is an error of both ends", "[nccl]") {
  const StandIn stand_in;
  const std::vector<absl::Status> statuses =
      StatusesOf(2, [](NcclCommunicator& group) -> absl::Status {
        DeviceArray array(group, DataType::kInt32, 8);
        return group.rank() == 0 ? group.Send(array.data(), 8, DataType::kInt32, 1)
                                 : group.Receive(array.data(), 7, DataType::kInt32, 0);
      });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(RankOf(status) == 0);
    CHECK(Contains(status.ToString(),
                   "rank 0 called send (int32 x 8, to 1) #1 where rank 1 called "
                   "recv (int32 x 7, from 0) #1"));
  }
}

TEST_CASE("a forked child can neither use nor harm its parent's group of device arrays", "[nccl]") {
  const StandIn stand_in;
  AsRanks(1, [](NcclCommunicator&) { return absl::OkStatus(); });  // Loads the libraries.
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  auto group = NewNcclCommunicator(OptionsOf(0, 1, "forked"), rendezvous);
  REQUIRE(group.status().ToString() == "OK");
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = (*group)->Barrier();
    (*group)->Abort("by the child");
    group->reset();
    _exit(absl::IsFailedPrecondition(status) ? 0 : 1);
  }
  int exit_status = 1;
  REQUIRE(waitpid(child, &exit_status, 0) == child);
  CHECK(exit_status == 0);
  CHECK(Reductions(**group, DataType::kFloat32, ReduceOp::kSum, 3).ToString() == "OK");
}

TEST_CASE("a rank that does not come is named when the timeout ends", "[nccl]") {
  const StandIn stand_in;
  std::atomic<bool> late_said = false;
  const std::vector<absl::Status> statuses =
      StatusesOf(2, [&](NcclCommunicator& group) -> absl::Status {
        DeviceArray array(group, DataType::kFloat32, 8);
        if (group.rank() == 1) {
          WaitUntil(30 * kSecond, [&] { return late_said.load(); });
          return group.Barrier();
        }
        const absl::Status status = group.AllReduce(
            array.data(), array.data(), 8, DataType::kFloat32, ReduceOp::kSum, 100 * kMillisecond);
        late_said = true;
        return status;
      });
  INFO(statuses[0]);
  CHECK(absl::IsDeadlineExceeded(statuses[0]));
  CHECK(RankOf(statuses[0]) == 1);
  CHECK(Contains(statuses[0].ToString(), "rank 1 (process "));
  CHECK(Contains(statuses[0].ToString(),
                 "has not entered all_reduce (float32 x 8, sum) #1 within 100ms"));
  INFO(statuses[1]);
  CHECK_FALSE(statuses[1].ok());
}

TEST_CASE("operations that wait behind one that fails end with it, and touch nothing of NCCL",
          "[nccl]") {
  const StandIn stand_in;
  std::atomic<bool> ended = false;
  std::vector<absl::Status> behind(4);
  StatusesOf(2, [&](NcclCommunicator& group) -> absl::Status {
    if (group.rank() == 1) {
      WaitUntil(30 * kSecond, [&] { return ended.load(); });
      return group.Barrier();
    }
    std::vector<std::thread> threads;
    for (absl::Status& status : behind) {
      threads.emplace_back([&] { status = group.Barrier(300 * kMillisecond); });
    }
    for (std::thread& thread : threads) thread.join();
    ended = true;
    return absl::OkStatus();
  });
  const auto late = [](const absl::Status& status) { return absl::IsDeadlineExceeded(status); };
  const auto dead = [](const absl::Status& status) { return absl::IsFailedPrecondition(status); };
  CHECK(std::count_if(behind.begin(), behind.end(), late) == 1);
  CHECK(std::count_if(behind.begin(), behind.end(), dead) == 3);
}

TEST_CASE("data that does not move ends with the timeout, or when its receiver gives up",
          "[nccl]") {
  const StandIn stand_in;
  // The message was announced, which needs no receiver; in NCCL the two do not meet.
  const bool abort = GENERATE(false, true);
  std::atomic<bool> ended = false;
  const std::vector<absl::Status> statuses =
      StatusesOf(2, [&](NcclCommunicator& group) -> absl::Status {
        DeviceArray array(group, DataType::kFloat32, 8);
        if (group.rank() == 0) {
          const absl::Status status = group.Send(array.data(), 8, DataType::kFloat32, 1,
                                                 abort ? 30 * kSecond : 100 * kMillisecond);
          ended = true;
          return status;
        }
        if (abort) group.Abort("enough");
        WaitUntil(30 * kSecond, [&] { return ended.load(); });
        return group.Barrier();
      });
  INFO(statuses[0]);
  CHECK(RankOf(statuses[0]) == 1);
  CHECK(Contains(statuses[0].ToString(), "send (float32 x 8, to 1) #1"));
  if (abort) {
    CHECK(absl::IsUnavailable(statuses[0]));
    CHECK(Contains(statuses[0].ToString(), "rank 1 gave up: aborted: enough"));
    CHECK(absl::IsFailedPrecondition(statuses[1]));
  } else {
    CHECK(absl::IsDeadlineExceeded(statuses[0]));
    CHECK(Contains(statuses[0].ToString(), "did not end within 100ms: rank 1 (process "));
    CHECK_FALSE(statuses[1].ok());
  }
}

TEST_CASE("an error that NCCL finds later ends the group on all ranks", "[nccl]") {
  const StandIn stand_in;
  void* const library = dlopen(SHEAF_FAKE_GPU, RTLD_NOW);
  REQUIRE(library != nullptr);
  const auto fail_next = reinterpret_cast<void (*)(int)>(dlsym(library, "fake_gpu_fail_next"));
  REQUIRE(fail_next != nullptr);
  const std::vector<absl::Status> statuses =
      StatusesOf(2, [&](NcclCommunicator& group) -> absl::Status {
        DeviceArray array(group, DataType::kFloat32, 8);
        SHEAF_RETURN_IF_ERROR(group.AllReduce(array.data(), array.data(), 8, DataType::kFloat32));
        SHEAF_RETURN_IF_ERROR(group.Barrier());
        if (group.rank() == 0) fail_next(6);  // ncclRemoteError.
        SHEAF_RETURN_IF_ERROR(group.Barrier());
        return group.AllReduce(array.data(), array.data(), 8, DataType::kFloat32);
      });
  bool said = false;
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(absl::IsUnavailable(status));
    said |= Contains(status.ToString(), "NCCL's communicator: remote process exited");
  }
  CHECK(said);
}

TEST_CASE("a group of device arrays is formed anew after an error, under the next epoch",
          "[nccl]") {
  const StandIn stand_in;
  FakeMeetingPlace place;
  std::vector<std::thread> threads;
  std::vector<std::string> said(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      FakeRendezvous rendezvous(place);
      uint64_t before = 0;
      for (int life = 0; life < 2; ++life) {
        auto group = NewNcclCommunicator(OptionsOf(rank, 2, "anew"), rendezvous);
        if (!group.ok()) {
          said[static_cast<size_t>(rank)] = group.status().ToString();
          return;
        }
        if (life == 1 && (*group)->epoch() <= before) said[static_cast<size_t>(rank)] = "epoch";
        before = (*group)->epoch();
        const absl::Status status = life == 1   ? Order(**group)
                                    : rank == 0 ? (*group)->Barrier()
                                                : absl::OkStatus();
        if (life == 0 && rank == 1) (*group)->Abort("the first life");
        if (status.ok() != (life == 1 || rank == 1)) {
          said[static_cast<size_t>(rank)] += status.ToString();
        }
        if (life == 1) (*group)->Barrier().IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(said[0] == "");
  CHECK(said[1] == "");
}

// False: there is none, which is said.
bool HaveGpu() {
  const absl::Status available = NcclAvailable(testing::WheelFolders());
  if (!available.ok()) std::cout << "SKIPPED: " << available.message() << "\n";
  return available.ok();
}

TEST_CASE("one rank on a GPU", "[.][gpu]") {
  if (!HaveGpu()) return;
  AsRanks(1, Table);
  AsRanks(1, Order);
}

TEST_CASE("several groups and streams on a GPU", "[.][gpu]") {
  if (HaveGpu()) SeveralGroups();
}

TEST_CASE("several ranks, on as many GPUs as there are, else on one", "[.][gpu]") {
  if (!HaveGpu()) return;
  const auto nccl = nccl::Library::Load(testing::WheelFolders());
  const int devices = (*CudaLibrary::Load())->devices();
  if (devices == 1) {
    if ((*nccl)->version() < 23200) {
      std::cout << "SKIPPED: one GPU, and NCCL " << nccl::VersionText((*nccl)->version())
                << " puts one rank on it: want 2.32\n";
      return;
    }
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  }
  AsRanks(2, Table, devices);
  AsRanks(3, Order, devices);
}

}  // namespace
}  // namespace sheaf
