// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a lane does where another rank does not come, over the stand-in and on a GPU.
#include "collective/nccl/nccl_lane.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "collective/nccl/nccl_rig_for_test.h"

namespace sheaf::nccl {
namespace {

using sheaf::testing::StandIn;
using sheaf::testing::WheelFolders;

Operation Sum(std::byte* array, size_t count) {
  return {CollectiveKind::kAllReduce, DataType::kFloat32, ReduceOp::kSum, array, array, count};
}

// A function of the stand-in.
template <class Function>
Function* InStandIn(const char* name, const char* path = SHEAF_FAKE_GPU) {
  void* const library = dlopen(path, RTLD_NOW);
  REQUIRE(library != nullptr);
  void* const symbol = dlsym(library, name);
  REQUIRE(symbol != nullptr);
  return reinterpret_cast<Function*>(symbol);
}
int OpenInStandIn() { return InStandIn<int()>("fake_gpu_open_comms")(); }

// Two lanes of one device, which have met, or not yet.
class Pair {
 public:
  explicit Pair(bool meet = true) {
    const auto library = Library::Load(WheelFolders());
    REQUIRE(library.status().ToString() == "OK");
    const auto cuda = CudaLibrary::Load(WheelFolders());
    REQUIRE(cuda.status().ToString() == "OK");
    const auto device = CudaDevice::Open(*cuda, 0);
    REQUIRE(device.status().ToString() == "OK");
    UniqueId id;
    REQUIRE((**library)->ncclGetUniqueId(&id) == kSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      lanes_[rank] = std::make_unique<Lane>(*library, *device, std::nullopt);
      arrays_[rank] = *(*device)->Allocate(4096);
    }
    std::thread other([&] { Meet(1, id, meet); });
    Meet(0, id, meet);
    other.join();
    REQUIRE(statuses_[0].ToString() == "OK");
    REQUIRE(statuses_[1].ToString() == "OK");
  }
  Lane& lane(int rank) { return *lanes_[rank]; }
  absl::Status Launch(int rank, size_t count) {
    return lane(rank).Launch(Sum(arrays_[rank].get(), count), nullptr);
  }
  // As a rank does it: both lanes in this thread.
  void Reduce(size_t count) {
    for (int rank = 0; rank < 2; ++rank) REQUIRE(Launch(rank, count).ToString() == "OK");
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(WaitUntil(30 * kSecond, [&] { return Is(lane(rank).Done()); }));
    }
  }
  static bool Is(const absl::StatusOr<bool>& ready) {
    INFO(ready.status());
    REQUIRE(ready.ok());
    return *ready;
  }

 private:
  void Meet(int rank, const UniqueId& id, bool to_the_end) {
    statuses_[rank] = lane(rank).Begin(id, 2, rank);
    while (to_the_end && statuses_[rank].ok()) {
      const absl::StatusOr<bool> ready = lane(rank).Ready();
      if (!ready.ok()) statuses_[rank] = ready.status();
      if (ready.ok() && *ready) return;
      std::this_thread::yield();
    }
  }

  std::shared_ptr<std::byte> arrays_[2];
  std::unique_ptr<Lane> lanes_[2];
  absl::Status statuses_[2];
};

// The first operation of its sort waits in NCCL for a rank that does not come; the wait is ours,
// and so is its end.
void EndAlone(size_t done_before) {
  Pair pair;
  for (size_t i = 0; i < done_before; ++i) pair.Reduce(8);
  REQUIRE(pair.Launch(0, 8).ToString() == "OK");
  CHECK_FALSE(WaitUntil(200 * kMillisecond, [&] { return Pair::Is(pair.lane(0).Done()); }));
  const Nanos began = MonotonicNow();
  pair.lane(0).Abort();
  CHECK(MonotonicNow() - began < 4 * kSecond);
  CHECK_FALSE(pair.lane(0).open());
  pair.lane(1).Abort();
}

// Both lanes end at the same time, as those of a group do.
void FinishTogether() {
  Pair pair;
  for (int i = 0; i < 3; ++i) pair.Reduce(8);
  pair.Reduce(800);  // Another sort.
  for (int rank = 0; rank < 2; ++rank) REQUIRE(pair.lane(rank).Finish().ToString() == "OK");
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(WaitUntil(30 * kSecond, [&] { return Pair::Is(pair.lane(rank).Ready()); }));
    pair.lane(rank).Close();
    CHECK_FALSE(pair.lane(rank).open());
  }
}

// Rank 0 alone asks for the second communicator, or both do and rank 0 does not hear of it.
void EndSplitting(bool both) {
  Pair pair(/*meet=*/false);
  CHECK_FALSE(WaitUntil(kSecond, [&] { return !both && Pair::Is(pair.lane(0).Ready()); }));
  if (both) {
    CHECK_FALSE(Pair::Is(pair.lane(0).Ready()));
    REQUIRE(WaitUntil(30 * kSecond, [&] { return Pair::Is(pair.lane(1).Ready()); }));
  }
  const Nanos began = MonotonicNow();
  pair.lane(0).Abort();
  CHECK(MonotonicNow() - began < 4 * kSecond);
  CHECK_FALSE(pair.lane(0).open());
  pair.lane(1).Abort();
}

TEST_CASE("a lane that ends while it is being formed leaves nothing of NCCL behind", "[nccl]") {
  const StandIn stand_in;
  EndSplitting(GENERATE(false, true));
  CHECK(OpenInStandIn() == 0);
}

TEST_CASE("a lane whose orderly end fails leaves nothing of NCCL behind", "[nccl]") {
  const StandIn stand_in;
  {
    Pair pair;
    pair.Reduce(8);
    InStandIn<void(int)>("fake_gpu_fail_finalize")(kInternalError);
    REQUIRE(pair.lane(0).Finish().ToString() == "OK");
    absl::StatusOr<bool> ready = false;
    REQUIRE(WaitUntil(30 * kSecond, [&] { return !(ready = pair.lane(0).Ready()).ok(); }));
    CHECK(absl::IsInternal(ready.status()));
  }
  CHECK(OpenInStandIn() == 0);
}

// While it lives no thread can be had.
class NoThreads {
 public:
  NoThreads() { SetStackSize(size_t{1} << 46); }
  ~NoThreads() { SetStackSize(size_t{8} << 20); }

 private:
  static void SetStackSize(size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
    REQUIRE(pthread_setattr_default_np(&attributes) == 0);
    pthread_attr_destroy(&attributes);
  }
};

TEST_CASE("a lane that gets no thread says so, and leaves nothing of NCCL behind", "[nccl]") {
  const StandIn stand_in;
  const bool finish = GENERATE(false, true);
  {
    Pair pair;
    if (finish) pair.Reduce(8);
    const NoThreads no_threads;
    if (finish) {
      CHECK(absl::IsResourceExhausted(pair.lane(0).Finish()));
    } else {
      REQUIRE(pair.Launch(0, 8).ToString() == "OK");
      const absl::StatusOr<bool> done = pair.lane(0).Done();
      CHECK(absl::IsResourceExhausted(done.status()));
    }
    pair.lane(0).Abort();
  }
  CHECK(OpenInStandIn() == 0);
}

TEST_CASE("a communicator is not freed under a call that does not end", "[nccl]") {
  const StandIn stand_in(SHEAF_FAKE_NEWER, SHEAF_FAKE_NEWER);
  const auto deafen = InStandIn<void(bool)>("fake_gpu_deafen", SHEAF_FAKE_NEWER);
  Pair pair;
  REQUIRE(pair.Launch(0, 8).ToString() == "OK");
  CHECK_FALSE(WaitUntil(100 * kMillisecond, [&] { return Pair::Is(pair.lane(0).Done()); }));
  deafen(true);
  pair.lane(0).Abort();
  CHECK(InStandIn<int()>("fake_gpu_freed_in_use", SHEAF_FAKE_NEWER)() == 0);
  deafen(false);
  REQUIRE(pair.Launch(1, 8).ToString() == "OK");  // Now the call ends.
}

TEST_CASE("a lane whose other rank does not come can be ended, in NCCL's call and behind it",
          "[nccl]") {
  const bool newer = GENERATE(false, true);  // Which can end a call of NCCL before it aborts.
  const char* const library = newer ? SHEAF_FAKE_NEWER : SHEAF_FAKE_GPU;
  const StandIn stand_in(library, library);
  EndAlone(GENERATE(0, 3));
}

TEST_CASE("lanes end in order", "[nccl]") {
  const StandIn stand_in;
  FinishTogether();
}

TEST_CASE("lanes of two ranks on one GPU end alone and together", "[.][gpu]") {
  const auto library = Library::Load(WheelFolders());
  if (!library.ok() || !CudaLibrary::Load(WheelFolders()).ok() || (*library)->version() < 23200) {
    std::cout << "SKIPPED: want a GPU, and NCCL 2.32 for two ranks on it\n";
    return;
  }
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  FinishTogether();
  EndAlone(0);
  EndAlone(3);
  EndSplitting(/*both=*/false);
  FinishTogether();
}

}  // namespace
}  // namespace sheaf::nccl
