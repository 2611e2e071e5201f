// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Training groups on a real node: a least-squares fit whose workers are killed, throw or hang on
// the way reaches the weights of one process, each step recorded once.
#include <sheaf/train.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/catch/run.h"
#include "tests/integration/least_squares.h"

namespace training {

TEST_CASE("1, 2 and 4 workers reach the weights of one process") {
  for (const int workers : {1, 2, 4}) {
    ScratchDirectory scratch;
    train::WorkerGroup<Fit> group({.workers = workers, .folder = scratch / "run"});
    const train::Result result = group.Run({.steps = 30, .save_each = 10});
    CheckReached(result, 30);
    CHECK(result.recoveries.empty());
    CHECK(result.checkpoint->folder().filename() == "checkpoint_000030");
  }
}

TEST_CASE("a worker that is killed, at any step, costs no step and doubles none") {
  ScratchDirectory scratch;
  int run = 0;
  for (const uint64_t at : {1, 9, 10, 17}) {
    const int victim = ++run % 3;
    train::Options options{
        .workers = 3, .folder = scratch / std::to_string(run), .max_failures = 1};
    train::WorkerGroup<Fit>* running = nullptr;
    std::vector<int> before;
    bool killed = false;
    options.on_step = [&](const train::Row& row) {
      if (row.step != at || std::exchange(killed, true)) return;
      for (const train::Member& member : running->members()) before.push_back(member.pid);
      kill(before[static_cast<size_t>(victim)], SIGKILL);
    };
    std::vector<int> after;
    options.on_event = [&](const train::Event&) {
      after.clear();
      for (const train::Member& member : running->members()) after.push_back(member.pid);
    };
    train::WorkerGroup<Fit> group(options);
    running = &group;
    const train::Result result = group.Run({.steps = 40, .save_each = 5});
    CAPTURE(at, victim);
    CHECK(Contains(Words(result), "3 workers on 1 node (2 kept, 1 new) begin from "));
    CHECK(result.recoveries.size() == 1);
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    std::vector<int> kept;
    std::set_intersection(before.begin(), before.end(), after.begin(), after.end(),
                          std::back_inserter(kept));
    CHECK(kept.size() == 2);
    CheckReached(result, 40);
  }
}

TEST_CASE("a worker that dies by itself, throws or hangs is named, and the others go on") {
  for (const std::string misdeed : {"die", "throw", "hang"}) {
    ScratchDirectory scratch;
    train::Options options{.workers = 2, .folder = scratch / "run", .max_failures = -1};
    if (misdeed == "hang") options.collective.timeout = 2s;
    train::WorkerGroup<Fit> group(options);
    const train::Result result =
        group.Run({.steps = 12, .save_each = 4, .misdeed = misdeed, .done = scratch / "done"});
    INFO(Words(result));
    CheckReached(result, 12);
    if (misdeed == "throw") CHECK(Contains(Words(result), "rank 1 (pid"));
    if (misdeed == "throw")
      CHECK(Contains(Words(result), "Fit threw std::out_of_range: no such sample"));
    if (misdeed == "hang") CHECK(Contains(Words(result), "has not entered all_reduce"));
    CHECK(Contains(Words(result), "begin from checkpoint_000004, step 4"));
    CHECK(Contains(Words(result), misdeed == "throw" ? "(2 kept, 0 new)" : "(1 kept, 1 new)"));
  }
}

TEST_CASE("more failures than allowed end in an error that names the rank") {
  ScratchDirectory scratch;
  train::WorkerGroup<Fit> group({.workers = 2, .folder = scratch / "run"});
  try {
    group.Run({.steps = 12, .save_each = 4, .misdeed = "throw", .done = scratch / "done"});
    FAIL("nothing was thrown");
  } catch (const train::TrainingError& error) {
    CHECK(error.rank() == 1);
    CHECK(error.cause().cause_type == "std::out_of_range");
    CHECK(Contains(
        error.what(),
        "rank 1 of 2 failed at step 7: training::Fit threw std::out_of_range: no such sample"));
    CHECK(Contains(error.what(), "max_failures=0 allows no more"));
    CHECK(error.result().history.size() >= 4);
    CHECK(error.result().checkpoint->Read<State>("state").step == 4);
  }
  // The folder holds what was reached: another run goes on from there.
  const train::Result result = group.Run({.steps = 12, .save_each = 4});
  CheckReached(result, 12);
  CHECK(Contains(Words(result), "goes on behind step 4 of a former run"));
}

struct Seen {
  int rank, world_size, local_rank, local_world_size, node_rank;
};
// What a worker knows of itself.
void Look(train::Worker& worker) {
  const Seen seen{worker.rank(), worker.world_size(), worker.local_rank(),
                  worker.local_world_size(), worker.node_rank()};
  std::vector<double> ranks(static_cast<size_t>(worker.world_size()));
  worker.group().AllGather(std::vector<double>{static_cast<double>(seen.rank)}, ranks);
  const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
  worker.Report({{"sum", sum},
                 {"local", seen.local_rank == seen.rank ? 1.0 : 0.0},
                 {"size", static_cast<double>(seen.local_world_size)},
                 {"node", static_cast<double>(seen.node_rank)},
                 {"epoch", static_cast<double>(worker.epoch())}});
}

TEST_CASE("a worker knows its place") {
  train::WorkerGroup<Look> group({.workers = 3});
  const train::Result result = group.Run();
  REQUIRE(result.history.size() == 1);
  CHECK(result.history[0].metrics ==
        train::Metrics{{"sum", 3}, {"local", 1}, {"size", 3}, {"node", 0}, {"epoch", 0}});
}

void SaveNowhere(train::Worker& worker) {
  if (worker.rank() == 0) worker.Report({}, [](train::Checkpoint&) {});
}

TEST_CASE("without a folder there are no checkpoints") {
  train::WorkerGroup<SaveNowhere> group({.workers = 2});
  try {
    group.Run();
    FAIL("nothing was thrown");
  } catch (const train::TrainingError& error) {
    CHECK(Contains(error.what(), "give the WorkerGroup Options::folder"));
    CHECK(error.rank() == 0);
  }
}

TEST_CASE("wrong options, and no room, are errors in words") {
  CHECK_THROWS_AS(train::WorkerGroup<Look>({.workers = 0}), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(train::WorkerGroup<Look>({.resources = {}}), sheaf::InvalidArgumentError);
  train::WorkerGroup<Look> group({.workers = 5, .placement_timeout = 300ms});
  CHECK_THROWS_WITH(group.Run(), Catch::Contains("no room for 5 workers of {CPU: 1} each"));
  CHECK(sheaf::AvailableResources().size() > 0);
}

void Endless(train::Worker& worker) {
  for (;;) worker.Report({});
}

TEST_CASE("what a callback throws ends the run, and gives its workers back") {
  train::Options options{.workers = 4};
  options.on_step = [](const train::Row& row) {
    if (row.step == 10) throw std::runtime_error("enough");
  };
  train::WorkerGroup<Endless> group(options);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(group.Run(), "enough");
}

}  // namespace training

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;
  options.store_bytes = 64 << 20;
  options.log_to_driver = false;
  sheaf::Init(argc, argv, options);
  return sheaf::RunTests(argc, argv);
}
