// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a rank sees of the others while it does not wait for them: their failures, ends and stops.
#include "collective/nccl/rank_board.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "collective/fake_rendezvous.h"
#include "collective/shm/shm_communicator.h"

namespace sheaf {
namespace {

std::unique_ptr<Communicator> Control(int rank, FakeMeetingPlace& place) {
  FakeRendezvous rendezvous(place);
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.arena_bytes = 0;
  auto group = FormShmCommunicator(options, rendezvous);
  return group.ok() ? *std::move(group) : nullptr;
}

constexpr Nanos kPatience = 30 * kSecond;

// Rank 1, as a process: forms the board, does what `end` says, and pauses.
template <class End>
pid_t StartRank1(FakeMeetingPlace& place, End end) {
  const pid_t process = fork();
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto control = Control(1, place);
  if (control == nullptr) _exit(1);
  auto board = RankBoard::Form(*control, "one", 30 * kSecond);
  if (!board.ok()) _exit(2);
  end(*board);
  while (true) pause();
}

struct Rank0 {
  template <class End>
  explicit Rank0(End end) : process(StartRank1(place, end)), control(Control(0, place)) {
    REQUIRE(control != nullptr);
    auto formed = RankBoard::Form(*control, "zero", 30 * kSecond);
    REQUIRE(formed.status().ToString() == "OK");
    board = *std::move(formed);
  }
  ~Rank0() {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  FakeMeetingPlace place;
  const pid_t process;
  std::unique_ptr<Communicator> control;
  std::unique_ptr<RankBoard> board;
};

TEST_CASE("what a rank says on the board is seen by the others", "[board]") {
  Rank0 self([](std::unique_ptr<RankBoard>& board) {
    board->Begin(3);
    board->Finish(3);
    board->Fail(WithRank(absl::DeadlineExceededError("rank 7 is late"), 0));
    board->Fail(absl::CancelledError("only the first counts"));
  });
  CHECK(std::string(self.board->about(1).c_str()) == "one");
  CHECK(std::string(self.board->about(0).c_str()) == "zero");
  REQUIRE(WaitUntil(kPatience, [&] { return !self.board->Failure().ok(); }));
  const absl::Status failure = self.board->Failure();
  CHECK(failure.ToString().find("DEADLINE_EXCEEDED: rank 1 gave up: rank 7 is late") == 0);
  CHECK(RankOf(failure) == 0);
  CHECK(self.board->Late(4) == 1);  // It has not begun.
  CHECK(self.board->Late(3) == std::nullopt);
  CHECK(self.board->Absence().ok());
}

TEST_CASE("a rank that is stopped, or dies, or leaves is seen by the others", "[board]") {
  const bool leaves = GENERATE(false, true);
  Rank0 self([&](std::unique_ptr<RankBoard>& board) {
    if (leaves) board.reset();
  });
  if (leaves) {
    REQUIRE(WaitUntil(kPatience, [&] { return !self.board->Absence().ok(); }));
    CHECK(self.board->Absence().message() == "rank 1 left the group");
    return;
  }
  CHECK(self.board->Absence().ok());
  kill(self.process, SIGSTOP);
  REQUIRE(WaitUntil(kPatience, [&] { return self.board->Late(0) == 1; }));
  const std::string process = "rank 1 (process " + std::to_string(self.process);
  CHECK(self.board->Describe(1) == process + ", which is stopped)");
  kill(self.process, SIGKILL);
  REQUIRE(WaitUntil(kPatience, [&] { return !self.board->Absence().ok(); }));
  CHECK(self.board->Absence().message() == process + ") died");
  CHECK(RankOf(self.board->Absence()) == 1);
}

}  // namespace
}  // namespace sheaf
