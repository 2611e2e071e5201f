// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/workers/worker_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "base/fake_clock.h"
#include "raylet/workers/fake_launcher.h"

namespace sheaf {
namespace worker_pool_test {

constexpr JobNumber kJob = 1;

struct PoolTest {
  explicit PoolTest(WorkerPoolOptions options = {.cpus = 2, .max_starting = 4})
      : pool(options, clock, launcher, numbers) {}

  // All that were started and are not ready become so.
  void AllReady() {
    for (const WorkerSpec& spec : launcher.TakeStarted()) pool.OnReady(spec.process);
  }
  ProcessId Lease(uint64_t ticket, bool actor = false, std::vector<uint32_t> gpus = {}) {
    pool.Need({.ticket = ticket, .job = kJob, .environment = "", .gpu_ids = gpus, .actor = actor});
    AllReady();
    const auto assigned = pool.TakeAssigned();
    REQUIRE(assigned.size() == 1);
    CHECK(assigned[0].ticket == ticket);
    return assigned[0].worker;
  }
  std::vector<ProcessId> AskedToLeave() {
    std::vector<ProcessId> asked;
    for (const WorkerPool::Leaving& leaving : pool.TakeLeaving()) asked.push_back(leaving.worker);
    return asked;
  }
  static proto::Death Crash(const char* message) {
    proto::Death death;
    death.set_cause(proto::Death::START_FAILED);
    death.set_message(message);
    return death;
  }

  FakeClock clock;
  FakeLauncher launcher;
  ProcessNumbers numbers{1};
  WorkerPool pool;
};

SCENARIO("as many workers as there are CPUs are started ahead when a job begins, no more") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  CHECK(t.launcher.started.size() == 2);
  t.AllReady();
  t.pool.Tick();
  CHECK(t.launcher.started.empty());
  CHECK(t.pool.CountStates().idle == 2);
}

SCENARIO("of a job that only has detached actors each gets its worker, and none starts ahead") {
  PoolTest t;
  t.pool.AddJob(kJob, "", /*ahead=*/false);
  CHECK(t.launcher.started.empty());
  t.pool.Need({.ticket = 1, .job = kJob, .actor = true});
  CHECK(t.launcher.TakeStarted().size() == 1);
  WHEN("one of them has calls of its own") {
    t.pool.Need({.ticket = 2, .job = kJob});
    THEN("another is made ready too") { CHECK(t.launcher.TakeStarted().size() == 1); }
  }
}

SCENARIO("where many jobs are known those that began elsewhere have as many workers as they need") {
  constexpr JobNumber kJobs = 6;
  PoolTest t;
  for (JobNumber job = kJob; job <= kJobs; ++job) t.pool.AddJob(job, "", /*ahead=*/job == kJob);
  t.AllReady();
  CHECK(t.pool.CountStates().idle == 2);
  for (JobNumber job = kJob + 1; job <= kJobs; ++job) {
    t.pool.Need({.ticket = job, .job = job});
    CHECK(t.launcher.started.size() == 1);
    t.AllReady();
  }
  CHECK(t.pool.TakeAssigned().size() == kJobs - 1);
  CHECK(t.pool.CountStates().idle == 2);
  for (JobNumber job = kJob + 1; job < kJobs; ++job) t.pool.RemoveJob(job, "it ended");
  t.pool.AddJob(kJobs + 1, "", /*ahead=*/false);
  t.pool.Need({.ticket = 1, .job = kJobs + 1});
  const std::vector<WorkerSpec>& started = t.launcher.started;
  CHECK(std::count_if(started.begin(), started.end(), [](const WorkerSpec& spec) {
          return spec.job == kJobs + 1;
        }) == 2);  // And a spare: they are few now.
}

SCENARIO("a need is met at once by an idle worker, and a worker given back is used again") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId worker = t.Lease(1);
  CHECK(t.pool.Find(worker)->state == WorkerState::kLeased);
  CHECK(t.launcher.started.empty());  // A leased worker will come back: no other is started.
  t.pool.OnReturned(worker, false);
  CHECK(t.Lease(2) == worker);
  CHECK(t.pool.Find(worker)->leases == 2);
}

SCENARIO("actors keep their workers, so others are started in their place") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  t.pool.Need({.ticket = 1, .job = kJob, .actor = true});
  CHECK(t.pool.TakeAssigned().size() == 1);
  CHECK(t.launcher.started.size() == 1);
}

SCENARIO("while workers are blocked, others stand in") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId first = t.Lease(1);
  const ProcessId second = t.Lease(2);
  CHECK(t.pool.OnBlocked(first, true));
  CHECK_FALSE(t.pool.OnBlocked(first, true));
  t.pool.Tick();
  CHECK(t.launcher.started.size() == 1);
  CHECK(t.pool.OnBlocked(first, false));
  CHECK(t.pool.Find(first)->state == WorkerState::kLeased);
  CHECK_FALSE(t.pool.OnBlocked(second, false));
}

SCENARIO("no more than max_starting start at once, over all jobs, in turn") {
  PoolTest t({.cpus = 1, .max_starting = 3});
  t.pool.AddJob(1, "");
  t.pool.AddJob(2, "");
  for (uint64_t ticket = 1; ticket <= 10; ++ticket) t.pool.Need({.ticket = ticket, .job = 1});
  for (uint64_t ticket = 11; ticket <= 20; ++ticket) t.pool.Need({.ticket = ticket, .job = 2});
  CHECK(t.launcher.started.size() == 3);
  int of_second = 0;
  for (int round = 0; round < 20; ++round) {
    for (const WorkerSpec& spec : t.launcher.TakeStarted()) {
      of_second += spec.job == 2;
      t.pool.OnReady(spec.process);
    }
    if (round == 3) CHECK(of_second >= 3);
  }
  CHECK(t.pool.TakeAssigned().size() == 20);
  CHECK(t.pool.waiting() == 0);
}

SCENARIO("workers of two jobs or two environments are never exchanged") {
  PoolTest t;
  t.pool.AddJob(1, "");
  t.AllReady();
  t.pool.AddJob(2, "");
  t.launcher.TakeStarted();
  t.pool.Need({.ticket = 1, .job = 2});
  t.pool.Need({.ticket = 2, .job = 1, .environment = "other"});
  CHECK(t.pool.TakeAssigned().empty());
  REQUIRE_FALSE(t.launcher.started.empty());
  CHECK(t.launcher.started.back().environment == "other");
}

SCENARIO("a worker that once had GPUs serves only leases of the same ones") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId bound = t.Lease(1, false, {0});
  t.pool.OnReturned(bound, false);
  CHECK(t.Lease(2) != bound);
  CHECK(t.Lease(3, false, {1}) != bound);
  CHECK(t.Lease(4, false, {0}) == bound);
  t.pool.OnReturned(bound, false);
  GIVEN("a long pause") {
    t.clock.Advance(11 * kSecond);
    t.pool.Tick();
    THEN("it may leave, as it may hold memory of its GPU") {
      CHECK(t.AskedToLeave() == std::vector{bound});
    }
  }
}

SCENARIO("idle workers beyond one per CPU may leave after a while, the longest idle first") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  std::vector<ProcessId> workers;
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) workers.push_back(t.Lease(ticket));
  for (const ProcessId worker : workers) {
    t.clock.Advance(kMillisecond);
    t.pool.OnReturned(worker, false);
  }
  t.clock.Advance(9 * kSecond);
  t.pool.Tick();
  CHECK(t.AskedToLeave().empty());
  t.clock.Advance(2 * kSecond);
  t.pool.Tick();
  CHECK(t.AskedToLeave() == std::vector{workers[0], workers[1]});
  t.clock.Advance(11 * kSecond);
  t.pool.Tick();
  CHECK(t.AskedToLeave().empty());  // Their answers are on their way.
  t.pool.OnStays(workers[0]);       // It has something to wait for, and is asked again.
  t.pool.OnStays(workers[1]);
  t.pool.Tick();
  CHECK(t.AskedToLeave().size() == 2);
  CHECK(t.pool.CountStates().idle == 4);
  for (int left = 0; left < 2; ++left) {
    CHECK(t.pool.OnLeaves(workers[left]));
    CHECK(t.pool.OnGoodbye(workers[left]));
    CHECK(t.pool.OnExited(workers[left], {}));
  }
  for (int hour = 0; hour < 3; ++hour) {
    t.clock.Advance(3600 * kSecond);
    t.pool.Tick();
  }
  CHECK(t.pool.CountStates().idle == 2);
  CHECK(t.launcher.started.empty());
}

SCENARIO("a worker that was asked to leave gets no lease before it has said that it stays") {
  PoolTest t({.cpus = 1});
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId worker = t.Lease(1);
  const ProcessId kept = t.Lease(2);
  t.pool.OnReturned(worker, false);
  t.pool.OnReturned(kept, false);
  t.clock.Advance(11 * kSecond);
  t.pool.Tick();
  REQUIRE(t.AskedToLeave() == std::vector{worker});
  t.launcher.TakeStarted();
  CHECK(t.Lease(3) == kept);
  t.pool.Need({.ticket = 4, .job = kJob});
  CHECK(t.pool.TakeAssigned().empty());
  CHECK(t.launcher.TakeStarted().size() == 1);  // Others need not wait for the answer.
  WHEN("it stays") {
    t.pool.OnStays(worker);
    const auto assigned = t.pool.TakeAssigned();
    REQUIRE(assigned.size() == 1);
    CHECK(assigned[0].worker == worker);
  }
  WHEN("it leaves, and its exit functions do not end") {
    CHECK(t.pool.OnLeaves(worker));
    CHECK(t.pool.TakeAssigned().empty());
    t.clock.Advance(WorkerPool::kDeparture - 1);
    t.pool.Tick();
    CHECK_FALSE(t.launcher.WasKilled(worker));
    t.clock.Advance(1);
    t.pool.Tick();
    CHECK(t.launcher.WasKilled(worker));
  }
}

SCENARIO("the workers of a node that drains leave once they are free, and none is started ahead") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId busy = t.Lease(1);
  const size_t idle = static_cast<size_t>(t.pool.CountStates().idle);
  t.pool.Drain();
  CHECK(t.AskedToLeave().size() == idle);
  t.pool.OnReturned(busy, false);
  t.pool.Tick();
  CHECK(t.AskedToLeave() == std::vector{busy});
  CHECK(t.launcher.TakeStarted().empty());
  CHECK(t.pool.CountStates().idle == 0);
}

SCENARIO("a worker that is retired gets no lease any more, and ends by itself") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId worker = t.Lease(1);
  t.pool.OnReturned(worker, /*discard=*/true);
  CHECK(t.AskedToLeave() == std::vector{worker});
  t.AllReady();
  t.clock.Advance(3600 * kSecond);  // As long as what it has begun takes.
  t.pool.Tick();
  CHECK_FALSE(t.launcher.WasKilled(worker));
  WHEN("it says that it ends, and does not") {
    CHECK(t.pool.OnGoodbye(worker));
    t.clock.Advance(WorkerPool::kLastSteps);
    t.pool.Tick();
    CHECK(t.launcher.WasKilled(worker));
  }
  WHEN("it is free of what it has begun, but its exit functions do not end") {
    CHECK(t.pool.OnLeaves(worker));
    t.clock.Advance(WorkerPool::kDeparture);
    t.pool.Tick();
    CHECK(t.launcher.WasKilled(worker));
  }
  WHEN("others need workers") {
    for (uint64_t ticket = 2; ticket <= 4; ++ticket) CHECK(t.Lease(ticket) != worker);
  }
  WHEN("its patience is bounded") {
    const ProcessId holder = t.Lease(5);
    t.pool.Retire(holder, kSecond, "its owner has no more use for it");
    t.clock.Advance(kSecond);
    t.pool.Tick();
    CHECK(t.launcher.WasKilled(holder));
  }
}

SCENARIO("failed starts are tried again, ever later, and then become an error") {
  PoolTest t({.cpus = 1, .start_attempts = 4, .first_backoff = 50 * kMillisecond});
  t.pool.AddJob(kJob, "");
  t.pool.Need({.ticket = 1, .job = kJob});
  Nanos waited = 0;
  for (int attempt = 1; attempt <= 4; ++attempt) {
    const auto started = t.launcher.TakeStarted();
    REQUIRE(started.size() == 1);
    CHECK(t.pool.OnExited(started[0].process, PoolTest::Crash("no such library")));
    if (attempt == 4) break;
    CHECK(t.pool.TakeFailed().empty());
    CHECK_THAT(t.pool.Words(kJob, ""), Catch::Contains("no such library"));
    const Nanos before = t.clock.Now();
    while (t.launcher.started.empty() && t.clock.Now() - before < 10 * kSecond) {
      t.clock.Advance(10 * kMillisecond);
      t.pool.Tick();
    }
    CHECK(t.clock.Now() - before > waited);
    waited = t.clock.Now() - before;
  }
  const auto failed = t.pool.TakeFailed();
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].ticket == 1);
  CHECK(failed[0].error.kind == ErrorKind::kEnvironmentFailed);
  CHECK_THAT(failed[0].error.message, Catch::Contains("no such library"));
  GIVEN("nobody needs one any more") {
    t.clock.Advance(60 * kSecond);
    t.pool.Tick();
    CHECK(t.launcher.started.empty());
  }
  GIVEN("a new need") {
    t.clock.Advance(60 * kSecond);
    t.pool.Need({.ticket = 2, .job = kJob});
    THEN("it has all attempts again") {
      const auto started = t.launcher.TakeStarted();
      REQUIRE(started.size() == 1);
      t.pool.OnReady(started[0].process);
      CHECK(t.pool.TakeAssigned().size() == 1);
    }
  }
}

SCENARIO("workers that die together while starting are one failed attempt") {
  PoolTest t({.cpus = 4, .max_starting = 8, .start_attempts = 3});
  t.pool.AddJob(kJob, "");
  t.pool.Need({.ticket = 1, .job = kJob});
  t.clock.Advance(kMillisecond);
  for (const WorkerSpec& spec : t.launcher.TakeStarted()) {
    t.pool.OnExited(spec.process, PoolTest::Crash("killed"));
  }
  CHECK(t.pool.TakeFailed().empty());
  t.clock.Advance(kSecond);
  t.pool.Tick();
  CHECK(t.launcher.started.size() == 1);  // One probe.
  t.AllReady();
  CHECK(t.pool.TakeAssigned().size() == 1);
  t.pool.Tick();
  CHECK(t.launcher.started.size() == 3);  // It worked, so the others follow.
}

SCENARIO("a worker that never becomes ready is killed and replaced") {
  PoolTest t({.cpus = 1, .start_timeout = 30 * kSecond});
  t.pool.AddJob(kJob, "");
  t.pool.Need({.ticket = 1, .job = kJob});
  const auto started = t.launcher.TakeStarted();
  REQUIRE(started.size() == 1);
  t.clock.Advance(31 * kSecond);
  t.pool.Tick();
  CHECK(t.launcher.WasKilled(started[0].process));
  CHECK_FALSE(t.pool.OnReady(started[0].process));  // Too late.
  t.clock.Advance(kSecond);
  t.pool.Tick();
  CHECK(t.launcher.started.size() == 1);
}

SCENARIO("the kernel refuses another process: a bounded number of attempts, then an error") {
  PoolTest t({.cpus = 1});
  t.launcher.error = absl::ResourceExhaustedError("fork: Resource temporarily unavailable");
  t.pool.AddJob(kJob, "");
  t.pool.Need({.ticket = 1, .job = kJob});
  for (int i = 0; i < 100; ++i) {
    t.clock.Advance(100 * kMillisecond);
    t.pool.Tick();
  }
  const auto failed = t.pool.TakeFailed();
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].error.kind == ErrorKind::kSystem);
  CHECK_THAT(failed[0].error.message, Catch::Contains("temporarily unavailable"));
}

SCENARIO("the end of a job ends its workers, but those that are to be kept") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.AllReady();
  const ProcessId kept = t.Lease(1, true);
  const ProcessId other = t.Lease(2);
  t.pool.EndWorkers(kJob, {kept}, "over");
  CHECK(t.launcher.WasKilled(other));
  CHECK_FALSE(t.launcher.WasKilled(kept));
  t.clock.Advance(kSecond);
  t.launcher.TakeStarted();
  t.pool.Tick();
  CHECK(t.launcher.started.empty());
  t.pool.RemoveJob(kJob, "over");
  CHECK(t.launcher.WasKilled(kept));
  t.pool.Need({.ticket = 3, .job = kJob});
  REQUIRE(t.pool.TakeFailed().size() == 1);
}

SCENARIO("an idle worker that owns tasks is not leased to itself") {
  PoolTest t({.cpus = 1});
  t.pool.AddJob(kJob, "");
  const ProcessId worker = t.launcher.TakeStarted().at(0).process;
  t.pool.OnReady(worker);
  t.pool.Need({.ticket = 1, .job = kJob, .owner = worker});
  CHECK(t.pool.TakeAssigned().empty());
  t.AllReady();
  REQUIRE(t.pool.CountStates().leased == 1);
  CHECK(t.pool.Find(worker)->state == WorkerState::kIdle);
}

SCENARIO("a worker that was told to leave is killed when it does not, or when its job ends") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  const ProcessId worker = t.Lease(1, /*actor=*/true);
  REQUIRE(t.pool.Dismiss(worker, 5 * kSecond, "no handle of it is left"));
  CHECK_FALSE(t.pool.Dismiss(worker, 5 * kSecond, "again"));
  CHECK(t.pool.CountStates().dying == 1);
  t.clock.Advance(5 * kSecond - 1);
  t.pool.Tick();
  CHECK_FALSE(t.launcher.WasKilled(worker));
  WHEN("it leaves") {
    CHECK(t.pool.OnExited(worker, {}));
    t.clock.Advance(kSecond);
    t.pool.Tick();
    CHECK_FALSE(t.launcher.WasKilled(worker));
  }
  WHEN("it does not") {
    t.clock.Advance(1);
    t.pool.Tick();
    CHECK(t.launcher.WasKilled(worker));
  }
  WHEN("its job ends") {
    t.pool.RemoveJob(kJob, "the driver has left");
    CHECK(t.launcher.WasKilled(worker));
  }
}

SCENARIO("a forgotten need gets no worker") {
  PoolTest t;
  t.pool.AddJob(kJob, "");
  t.pool.Need({.ticket = 1, .job = kJob});
  CHECK(t.pool.IsNeeded(1));
  CHECK(t.pool.Forget(1));
  CHECK_FALSE(t.pool.Forget(1));
  t.AllReady();
  CHECK(t.pool.TakeAssigned().empty());
}

}  // namespace worker_pool_test
}  // namespace sheaf
