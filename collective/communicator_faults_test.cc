// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What happens when a rank is killed, stopped, late, or calls something else: ranks are processes
// here, and each reports what its operations returned.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "base/failpoint.h"
#include "collective/rank_page.h"
#include "collective/ranks_for_test.h"

namespace sheaf {
namespace {

using enum Implementation;
using testing::Contains;
using testing::Form;
using testing::kSoon;
using testing::OptionsOf;
using testing::PauseForever;
using testing::Ranks;
using testing::Words;

TEST_CASE("a rank that was killed is named to all others within a second", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  // Before it enters, having entered, with half of the chunks, and inside the others' arrays.
  const std::string where =
      GENERATE("idle", "collective.entered", "collective.consumed", "collective.direct");
  if (where == "collective.direct" && implementation == kApart) return;  // There is none.
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 3, rendezvous);
      const size_t count = 1 << 20;
      auto shared = *group->Allocate(count * 4);
      std::vector<float> own(count);
      void* array = where == "collective.direct" ? static_cast<void*>(shared.get()) : own.data();
      if (!group->Barrier().ok()) Ranks::Say("no barrier");
      Ranks::Say("ready");
      if (rank == 1) {
        if (where == "idle") PauseForever();
        ArmFailpoints(where + ":kill@2", 0).IgnoreError();
      }
      absl::Status status;
      const Nanos began = MonotonicNow();
      for (int i = 0; i < 3 && status.ok(); ++i) {
        status = group->AllReduce(array, array, count, DataType::kFloat32);
      }
      const bool slow = MonotonicNow() - began > 10 * kSecond;
      Ranks::Say(Words(status) + (slow ? " SLOW" : ""));
      Ranks::Say(Words(group->Barrier()));
    });
  }
  for (size_t rank = 0; rank < 3; ++rank) REQUIRE(ranks.Line(rank) == "ready");
  if (where == "idle") kill(ranks.pid(1), SIGKILL);
  for (size_t rank : {0, 2}) {
    const std::string line = ranks.Line(rank);
    INFO(where << ", rank " << rank << ": " << line);
    CHECK(Contains(line, "UNAVAILABLE 1: "));
    CHECK(Contains(line, "all_reduce (float32 x 1048576, sum)"));
    CHECK(Contains(line, "died"));
    if (implementation == kShm) {
      CHECK(Contains(line, "its last finished operation is"));
    } else {
      CHECK(Contains(line, "the last operation that it entered is"));
    }
    if (where == "idle") {
      CHECK((Contains(line, "operation is barrier #1") || Contains(line, "entered is barrier #1")));
    }
    CHECK_FALSE(Contains(line, "SLOW"));
    const std::string next = ranks.Line(rank);
    CHECK(Contains(next, "FAILED_PRECONDITION 1: the group 'default' (epoch 0) is dead"));
  }
}

TEST_CASE("a rank that was killed is named at once though a child of it lives on", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 2, rendezvous);
      if (rank == 1) {
        const pid_t child = fork();
        if (child == 0) {
          alarm(30);
          PauseForever();
        }
        Ranks::Say(std::to_string(child));
        ArmFailpoints("collective.consumed:kill@1", 0).IgnoreError();
      }
      std::vector<float> array(1 << 20);
      Ranks::Say(
          Words(group->AllReduce(array.data(), array.data(), array.size(), DataType::kFloat32)));
    });
  }
  const pid_t child = std::stoi(ranks.Line(1));
  const Nanos began = MonotonicNow();
  const std::string line = ranks.Line(0);
  INFO(line);
  CHECK(Contains(line, "UNAVAILABLE 1: "));
  CHECK(MonotonicNow() - began < 10 * kSecond);
  kill(child, SIGKILL);
}

TEST_CASE("a rank that is stopped is named after the timeout, and learns of it when it goes on",
          "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  // A barrier needs nothing of the others but that they enter, as they have when it goes on.
  const bool barrier = GENERATE(true, false);
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 3, rendezvous);
      if (!group->Barrier().ok()) Ranks::Say("no barrier");
      Ranks::Say("ready");
      if (rank == 2) raise(SIGSTOP);
      float value = 1;
      const Nanos timeout = rank == 2 ? kSoon : 300 * kMillisecond;
      Ranks::Say(Words(barrier ? group->Barrier(timeout)
                               : group->AllReduce(&value, &value, 1, DataType::kFloat32,
                                                  ReduceOp::kMax, timeout)));
    });
  }
  for (size_t rank = 0; rank < 3; ++rank) REQUIRE(ranks.Line(rank) == "ready");
  for (size_t rank : {0, 1}) {
    const std::string line = ranks.Line(rank);
    INFO(line);
    CHECK(Contains(line, "DEADLINE_EXCEEDED 2: "));
    const std::string state =
        implementation == kShm ? ", which is stopped)" : ", which does not answer)";
    CHECK(Contains(line, state + " has not entered " +
                             std::string(barrier ? "barrier" : "all_reduce (float32 x 1, max)") +
                             " #2"));
    CHECK(Contains(line, implementation == kShm
                             ? "within 300ms; its last finished operation is barrier #1"
                             : "within 300ms; the last operation that it entered is barrier #1"));
  }
  kill(ranks.pid(2), SIGCONT);
  const std::string line = ranks.Line(2);
  INFO(line);
  CHECK(Contains(line, "DEADLINE_EXCEEDED 2: "));
  CHECK(Contains(line, "gave up: rank 2 (process"));
}

TEST_CASE("a rank that calls something else is named to all, with what it called", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  using Call = std::function<absl::Status(Communicator&, float*)>;
  const auto [odd, words] = GENERATE(table<Call, std::string>(
      {{[](Communicator& g, float* a) { return g.Broadcast(a, 1000, DataType::kFloat32, 0); },
        "rank 1 called broadcast (float32 x 1000, root 0) #1"},
       {[](Communicator& g, float* a) { return g.AllReduce(a, a, 999, DataType::kFloat32); },
        "rank 1 called all_reduce (float32 x 999, sum) #1"},
       {[](Communicator& g, float* a) { return g.AllReduce(a, a, 1000, DataType::kInt32); },
        "rank 1 called all_reduce (int32 x 1000, sum) #1"},
       {[](Communicator& g, float* a) {
          return g.AllReduce(a, a, 1000, DataType::kFloat32, ReduceOp::kMin);
        },
        "rank 1 called all_reduce (float32 x 1000, min) #1"},
       {[](Communicator& g, float*) { return g.Barrier(); }, "rank 1 called barrier #1"}}));
  const int world = GENERATE(2, 3);
  Ranks ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.Start(rank, [&, call = odd](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, world, rendezvous);
      std::vector<float> array(1000);
      const absl::Status status =
          rank == 1 ? call(*group, array.data())
                    : group->AllReduce(array.data(), array.data(), 1000, DataType::kFloat32);
      Ranks::Say(Words(status));
      group->Barrier(kSecond).IgnoreError();
    });
  }
  for (int rank = 0; rank < world; ++rank) {
    std::string line = ranks.Line(static_cast<size_t>(rank));
    INFO("rank " << rank << ": " << line);
    CHECK(Contains(line, "INVALID_ARGUMENT 1: "));
    if (const size_t at = line.find(" (this one)"); rank == 1 && at != std::string::npos) {
      line.replace(at, 11, "");
    }
    CHECK(Contains(line, words));
    CHECK(Contains(line, "rank 0"));
  }
}

TEST_CASE("a message of another size is an error of both ends", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 2, rendezvous);
      std::vector<int32_t> array(1 << 20);
      absl::Status status = rank == 0 ? group->Send(array.data(), 1 << 20, DataType::kInt32, 1)
                                      : group->Receive(array.data(), 7, DataType::kInt32, 0);
      // A send ends once its array may be used again: a socket may take all of it before the other
      // end looks. Then what comes next says what was wrong.
      if (rank == 0 && status.ok()) status = group->Barrier();
      Ranks::Say(Words(status));
    });
  }
  const std::string words =
      "rank 0 sent int32 x 1048576 where rank 1 called recv (int32 x 7, from 0)";
  for (size_t rank : {0, 1}) {
    const std::string line = ranks.Line(rank);
    INFO("implementation " << implementation << ", rank " << rank << ": " << line);
    CHECK(Contains(line, "INVALID_ARGUMENT 0: "));
    CHECK(Contains(line, words));
  }
}

TEST_CASE("an abort, and a rank that leaves, end what the others wait for", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const bool leave = GENERATE(true, false);
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 2, rendezvous);
      if (rank == 1) {
        if (!leave) group->Abort("enough");
        group.reset();
        Ranks::Say("gone");
        PauseForever();
      }
      Ranks::Say(Words(group->Barrier()));
    });
  }
  CHECK(ranks.Line(1) == "gone");
  const std::string line = ranks.Line(0);
  INFO(line);
  CHECK(Contains(line, "UNAVAILABLE 1: barrier #1"));
  CHECK(Contains(line, leave ? "rank 1 left the group; its last finished operation is none"
                             : "rank 1 gave up: aborted: enough"));
}

TEST_CASE("a rank that is slow holds up no other before all slots are full", "[faults]") {
  Ranks ranks;
  constexpr size_t kCount = 32 * kSlotBytes / 4;
  static_assert(SlotsFor(3) >= 32);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(kShm, rank, 3, rendezvous);
      std::vector<float> array(kCount, rank == 0 ? 7.0f : 0.0f);
      if (rank == 1) ArmFailpoints("collective.consumed:sleep(2000)@1", 0).IgnoreError();
      const Nanos began = MonotonicNow();
      const absl::Status status = group->Broadcast(array.data(), kCount, DataType::kFloat32, 0);
      const bool slow = MonotonicNow() - began > kSecond;
      Ranks::Say(Words(status) + " " + std::to_string(array[kCount - 1]) + (slow ? " SLOW" : ""));
      group->Barrier().IgnoreError();
    });
  }
  CHECK(ranks.Line(0) == "OK -1:  7.000000");
  CHECK(ranks.Line(2) == "OK -1:  7.000000");
  CHECK(ranks.Line(1) == "OK -1:  7.000000 SLOW");
}

TEST_CASE("a thread that waits goes when it is interrupted, and the others hear of it",
          "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  // For a message, for the others to enter, and inside an operation.
  const std::string where = GENERATE("recv", "entering", "consumed");
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      CommunicatorOptions options = OptionsOf(rank, 3);
      bool wants_to_go = false;
      if (rank == 0) options.interrupted = [&] { return wants_to_go; };
      auto group = FormFor(implementation, options, rendezvous);
      uint8_t here = 1;  // Says that this rank has formed the group.
      for (int peer : {1, 2}) {
        const absl::Status told = rank == 0 ? (*group)->Receive(&here, 1, DataType::kUint8, peer)
                                  : rank == peer ? (*group)->Send(&here, 1, DataType::kUint8, 0)
                                                 : absl::OkStatus();
        if (!told.ok()) Ranks::Say(Words(told));
      }
      wants_to_go = true;
      std::vector<float> array(1 << 20);
      const auto reduce = [&] {
        return (*group)->AllReduce(array.data(), array.data(), array.size(), DataType::kFloat32);
      };
      if (rank != 0) {
        if (where == "consumed") {
          if (rank == 2) ArmFailpoints("collective.consumed:sleep(1000)@1", 0).IgnoreError();
          Ranks::Say(Words(reduce()));
        } else if (rank == 1) {
          Ranks::Say(Words((*group)->Barrier()));
        } else {
          PauseForever();
        }
        return;
      }
      Ranks::Say(Words(where == "recv" ? (*group)->Receive(array.data(), 1, DataType::kFloat32, 1)
                       : where == "entering" ? (*group)->Barrier()
                                             : reduce()));
    });
  }
  const std::string what = where == "recv"       ? "recv (float32 x 1, from 1)"
                           : where == "entering" ? "barrier"
                                                 : "all_reduce (float32 x ";
  const std::string first = ranks.Line(0);
  INFO(implementation << ", " << where << ": " << first);
  CHECK(Contains(first, "CANCELLED -1: "));
  CHECK(Contains(first, what));
  CHECK(Contains(first, "was interrupted"));
  const std::string second = ranks.Line(1);
  INFO(second);
  CHECK(Contains(second, "UNAVAILABLE 0: "));
  CHECK(Contains(second, " ended, as rank 0 gave up"));
}

TEST_CASE("a group is formed anew, under the next epoch, by survivors and a successor",
          "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  Ranks ranks;
  const auto body = [&](int rank, Rendezvous& rendezvous) {
    for (int life = 0; life < 2; ++life) {
      auto group = Form(implementation, rank, 3, rendezvous);
      absl::Status status;
      int32_t value = 1;
      while (status.ok()) {
        Ranks::Say("epoch " + std::to_string(group->epoch()));
        if (rank == 0 && group->epoch() == 0) raise(SIGKILL);
        value = 1;
        status = group->AllReduce(&value, &value, 1, DataType::kInt32);
        if (status.ok()) {
          Ranks::Say("sum " + std::to_string(value));
          group->Barrier().IgnoreError();
          PauseForever();
        }
      }
      Ranks::Say(Words(status));
    }
  };
  for (int rank = 0; rank < 3; ++rank) ranks.Start(rank, body);
  for (size_t rank = 0; rank < 3; ++rank) REQUIRE(ranks.Line(rank) == "epoch 0");
  for (size_t rank : {1, 2}) CHECK(Contains(ranks.Line(rank), "UNAVAILABLE 0: "));
  ranks.Start(0, body);
  for (size_t rank : {1, 2, 3}) {
    CHECK(ranks.Line(rank) == "epoch 1");
    CHECK(ranks.Line(rank) == "sum 3");
  }
}

TEST_CASE("a group that is not complete is an error that says who is missing and why", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  CommunicatorOptions options = OptionsOf(0, 3);
  options.formation_timeout = 200 * kMillisecond;
  // What a process that is gone left, and what another kind of rank left.
  REQUIRE(rendezvous.Publish(1, "not for me", kForever).ok());
  const absl::Status status = FormFor(implementation, options, rendezvous).status();
  INFO(status);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(
      Contains(std::string(status.message()),
               "the group 'default' of 3 ranks was not formed within 200 ms: rank 1: it published "
               "what this version of Sheaf cannot read; rank 2: it has not come"));
  const int first = 0;
  CHECK(rendezvous.Look({&first, 1}, kForever)->at(0) == std::nullopt);
  options.rank = 3;
  CHECK(absl::IsInvalidArgument(FormFor(implementation, options, rendezvous).status()));
}

TEST_CASE("what a dead process published is refused, and its successor is found", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  Ranks ranks;
  const auto lonely = [&](int rank, Rendezvous& rendezvous) {
    Ranks::Say("here");
    Form(implementation, rank, 2, rendezvous)->Barrier().IgnoreError();
    Ranks::Say("formed");
    PauseForever();
  };
  ranks.Start(1, lonely);
  REQUIRE(ranks.Line(0) == "here");
  kill(ranks.pid(0), SIGKILL);  // With what it published, if it had come so far.
  waitpid(ranks.pid(0), nullptr, 0);
  ranks.Start(0, lonely);
  ranks.Start(1, lonely);
  for (size_t index : {1, 2}) {
    CHECK(ranks.Line(index) == "here");
    CHECK(ranks.Line(index) == "formed");
  }
}

// What was published stays, as that of a rank that gave up a moment ago.
class NothingIsWithdrawn final : public Rendezvous {
 public:
  absl::Status Publish(int rank, absl::string_view bytes, Nanos deadline) override {
    return inner_.Publish(rank, bytes, deadline);
  }
  absl::StatusOr<Found> Look(std::span<const int> ranks, Nanos deadline) override {
    return inner_.Look(ranks, deadline);
  }
  absl::Status Withdraw(int, absl::string_view, Nanos) override { return absl::OkStatus(); }

 private:
  FakeMeetingPlace place_;
  FakeRendezvous inner_{place_};
};

TEST_CASE("a published descriptor whose number names a socket by now is old", "[faults]") {
  NothingIsWithdrawn rendezvous;
  CommunicatorOptions options = OptionsOf(1, 2);
  options.formation_timeout = 50 * kMillisecond;
  CHECK(absl::IsDeadlineExceeded(FormFor(kShm, options, rendezvous).status()));
  std::vector<UniqueFd> sockets;  // They take the lowest numbers, so also that of the segment.
  for (int i = 0; i < 16; ++i) {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    for (const int fd : pair) sockets.emplace_back(fd);
  }
  options.rank = 0;
  const absl::Status status = FormFor(kShm, options, rendezvous).status();
  INFO(status);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Contains(std::string(status.message()), "is old: the descriptor is another's"));
}

TEST_CASE("a forked child cannot use its parent's group, nor harm it", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 2, rendezvous);
      const pid_t child = fork();
      if (child == 0) {
        const absl::Status status = group->Barrier();
        group->Abort("by the child");
        group.reset();
        _exit(absl::IsFailedPrecondition(status) ? 0 : 1);
      }
      int exit_status = 1;
      waitpid(child, &exit_status, 0);
      Ranks::Say(exit_status == 0 ? Words(group->Barrier()) : "the child could");
      PauseForever();
    });
  }
  for (size_t rank : {0, 1}) CHECK(Contains(ranks.Line(rank), "OK"));
}

TEST_CASE("nothing is left when all ranks were killed", "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  const auto segments = [] {
    size_t found = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      found += Contains(target, "sheaf-collective");
    }
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
      found += Contains(entry.path().string(), "sheaf-collective");
    }
    return found;
  };
  {
    Ranks ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
        auto group = Form(implementation, rank, 2, rendezvous);
        Ranks::Say("ready");
        PauseForever();
      });
    }
    for (size_t rank : {0, 1}) REQUIRE(ranks.Line(rank) == "ready");
  }
  CHECK(segments() == 0);
}

}  // namespace
}  // namespace sheaf
