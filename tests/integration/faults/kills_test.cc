// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows 1 to 4: workers die, at random moments and at named places, and the work goes on.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

constexpr size_t kLarge = 20'000;  // Numbers: 160 kB, so in the store.

uint64_t KillsSmall(uint64_t x) {
  std::this_thread::sleep_for(std::chrono::microseconds(Mix(x) % 3000));
  return Mix(x);
}
std::vector<uint64_t> KillsLarge(uint64_t x) { return Values(x, kLarge); }
uint64_t KillsCheck(sheaf::Array<uint64_t> values, uint64_t x) {
  return AreValues(values, x, kLarge) ? Mix(x) : 0;
}
uint64_t KillsParent(uint64_t x);
uint64_t KillsMarked(std::string marks, uint64_t x) {
  RunMarks::Add(marks, x);
  return Mix(x);
}
std::vector<uint64_t> KillsMarkedLarge(std::string marks, uint64_t x) {
  RunMarks::Add(marks, x);
  return Values(x, kLarge);
}
std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> KillsNested(uint64_t x) {
  return {sheaf::Put(Values(x, kLarge)), sheaf::Put(Values(x + 1, kLarge))};
}
int KillsDie(std::string path) {
  const uint64_t now = MonotonicNs();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&now), sizeof now)
      .flush();
  raise(SIGKILL);
  return 0;
}
int KillsPoison(std::string marks) {
  RunMarks::Add(marks, 0);
  raise(SIGKILL);
  return 0;
}
int KillsCrashWhileWriting() {
  auto building = sheaf::CreateArray<double>(4'000'000);
  for (size_t i = 0; i < building.size() / 2; ++i) building.data()[i] = 1;
  raise(SIGSEGV);
  return 0;
}

class KillsCounter {
 public:
  KillsCounter() = default;
  uint64_t Add(uint64_t x) { return sum_ += x; }
  uint64_t Mark(std::string marks, uint64_t x) {
    RunMarks::Add(marks, x);
    return Mix(x);
  }

 private:
  uint64_t sum_ = 0;
};

SHEAF_REMOTE(KillsSmall, KillsLarge, KillsCheck, KillsParent, KillsMarked, KillsMarkedLarge,
             KillsNested, KillsDie, KillsPoison, KillsCrashWhileWriting);
SHEAF_ACTOR(KillsCounter, sheaf::Constructor<>, &KillsCounter::Add, &KillsCounter::Mark);

uint64_t KillsParent(uint64_t x) {
  auto a = sheaf::Task(KillsSmall).Retries(-1).Remote(x);
  auto b = sheaf::Task(KillsSmall).Retries(-1).Remote(x + 1);
  return sheaf::Get(a) ^ sheaf::Get(b);
}

// `pid` has come as far as to join its node: it sees the bells.
bool HasJoined(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("sheaf-bells") != std::string::npos) return true;
  return false;
}

// Kills a worker of `node` now and then: also those that start, but no more than two of them one
// after the other. Four starts in a row that fail are an error of their own, and starts are slow
// under a sanitizer: who has just joined its node may not have told it yet.
class Killer {
 public:
  Killer(const Node& node, int wanted, int most_ms)
      : thread_([this, &node, wanted, most_ms] {
          std::mt19937_64 random(seed);
          int starting_killed = 0;  // Since the last that had been there for a while.
          std::map<pid_t, Clock::time_point> joined_at;
          while (!stop_ && kills_ < wanted) {
            std::this_thread::sleep_for(
                std::chrono::milliseconds(random() % static_cast<uint64_t>(most_ms)));
            std::vector<pid_t> workers = ProcessesOf(node.directory());
            std::erase(workers, node.pid());
            if (workers.empty()) continue;
            for (const pid_t worker : workers)
              if (HasJoined(worker)) joined_at.try_emplace(worker, Clock::now());
            const pid_t victim = workers[random() % workers.size()];
            const auto joined = joined_at.find(victim);
            const bool starts = joined == joined_at.end() || Clock::now() - joined->second < 250ms;
            if (starts && starting_killed == 2) continue;
            starting_killed = starts ? starting_killed + 1 : 0;
            if (kill(victim, SIGKILL) == 0) ++kills_;
          }
        }) {}
  ~Killer() {
    stop_ = true;
    thread_.join();
  }
  int kills() const { return kills_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> kills_{0};
  std::thread thread_;
};

// One round of mixed work, every value checked; returns how many were wrong.
size_t MixedRound(sheaf::ActorHandle<KillsCounter>& counter, uint64_t base) {
  std::vector<sheaf::ObjectRef<uint64_t>> small, parents, checks, calls;
  for (uint64_t i = 0; i < 50; ++i) {
    small.push_back(sheaf::Task(KillsSmall).Retries(-1).Remote(base + i));
    calls.push_back(counter.Task(&KillsCounter::Add).Remote(uint64_t{1}));
    if (i % 10 != 0) continue;
    parents.push_back(sheaf::Task(KillsParent).Retries(-1).Remote(base + i));
    checks.push_back(sheaf::Task(KillsCheck)
                         .Retries(-1)
                         .Remote(sheaf::Task(KillsLarge).Retries(-1).Remote(base + i), base + i));
  }
  size_t wrong = 0;
  for (uint64_t i = 0; i < small.size(); ++i) wrong += sheaf::Get(small[i], 60s) != Mix(base + i);
  for (uint64_t i = 0; i < parents.size(); ++i) {
    wrong += sheaf::Get(parents[i], 60s) != (Mix(base + 10 * i) ^ Mix(base + 10 * i + 1));
    wrong += sheaf::Get(checks[i], 60s) != Mix(base + 10 * i);
  }
  uint64_t last = sheaf::Get(calls[0], 60s);
  for (size_t i = 1; i < calls.size(); ++i) {
    const uint64_t value = sheaf::Get(calls[i], 60s);
    // In order within an incarnation; a new one counts from 1.
    wrong += value != last + 1 && value > last;
    last = value;
  }
  return wrong;
}

// A worker that reaches its first call takes a tenth of it.
#ifdef SHEAF_TSAN
constexpr int kBetweenKillsMs = 400;
#else
constexpr int kBetweenKillsMs = 60;
#endif

std::string FailpointText(const std::string& name, double probability) {
  std::ostringstream text;
  text << name << ":kill%" << probability << ":" << seed;
  return text.str();
}

}  // namespace

TEST_CASE(
    "row 1: workers are killed at random moments and places under mixed load; every value is right",
    "[row1]") {
  const int wanted = Count(40, 1000);
  NodeOptions options;
  for (const char* name :
       {"worker.before_call", "worker.before_reply", "worker.after_call", "store.sealed",
        "store.reported", "shm.batch", "shm.make_room", "shm.wake"}) {
    options.worker_failpoints +=
        (options.worker_failpoints.empty() ? "" : ",") + FailpointText(name, 0.0005);
  }
  Node node(options);
  const auto begin = Clock::now();
  auto counter = sheaf::Actor<KillsCounter>().MaxRestarts(-1).MaxTaskRetries(-1).Remote();
  uint64_t round = 0;
  size_t wrong = 0;
  int kills = 0;
  double died = 0;
  {
    // A template, or a worker that has not reported yet, is killed and is no worker that died:
    // where starts are slow these are many.
    Killer killer(node, 100 * wanted, kBetweenKillsMs);
    while (killer.kills() < wanted || died < wanted / 2) {
      wrong += MixedRound(counter, seed + 1000 * round++);
      died = Metric("sheaf_worker_deaths_total", "cause=\"signalled\"");
      REQUIRE(Clock::now() - begin < 10min);
    }
    kills = killer.kills();
  }
  CHECK(wrong == 0);
  counter = {};
  node.RequireQuiet();
  std::ostringstream words;
  words << "kills " << kills << " from outside, " << died << " workers died by a signal, " << round
        << " rounds, " << wrong << " wrong values, " << Seconds(Clock::now() - begin) << " s";
  Figures("1", words.str());
}

TEST_CASE("row 1: without retries the caller hears of its worker's death at once", "[row1]") {
  const Node node({});
  const Scratch scratch;
  std::vector<double> milliseconds;
  for (int i = 0; i < Count(20, 200); ++i) {
    const std::string path = scratch.path() + "/" + std::to_string(i);
    CHECK_THROWS_AS(sheaf::Get(sheaf::Task(KillsDie).Retries(0).Remote(path), 20s),
                    sheaf::WorkerCrashedError);
    uint64_t at = 0;
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&at), sizeof at);
    milliseconds.push_back(static_cast<double>(MonotonicNs() - at) / 1e6);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double p50 = milliseconds[milliseconds.size() / 2];
  const double p99 = milliseconds[milliseconds.size() * 99 / 100];
  CHECK(p50 < 500);
  std::ostringstream words;
  words << "from the kill to WorkerCrashed: p50 " << p50 << " ms, p99 " << p99 << " ms of "
        << milliseconds.size();
  Figures("1", words.str());
}

TEST_CASE("row 2: user code crashes while it writes an unsealed object; its memory is used again",
          "[row2]") {
  Node node({});
  for (int i = 0; i < Count(12, 100); ++i) {  // Each 32 MB of a store of 128 MB.
    CHECK_THROWS_AS(sheaf::Get(sheaf::Task(KillsCrashWhileWriting).Retries(0).Remote(), 20s),
                    sheaf::WorkerCrashedError);
  }
  CHECK(
      sheaf::Get(
          sheaf::Task(KillsCheck).Remote(sheaf::Task(KillsLarge).Remote(uint64_t{5}), uint64_t{5}),
          20s) == Mix(5));
  node.RequireQuiet();
}

// Each process dies the n-th time it passes the place, so every worker dies there sooner or later.
TEST_CASE(
    "row 3: workers die between sealing, reporting and the acknowledgement: one result, no leak",
    "[row3]") {
  const int calls = Count(60, 1500);
  int rounds = 0;
  double died = 0;
  size_t values = 0, crashed = 0, twice = 0;
  const auto begin = Clock::now();
  for (const std::string place :
       {"store.sealed", "store.reported", "worker.before_reply", "worker.after_call"}) {
    const Scratch scratch;
    const RunMarks retried(scratch.path());
    const Scratch once_scratch;
    const RunMarks once(once_scratch.path());
    NodeOptions options;
    options.worker_failpoints =
        place + ":kill@" + std::to_string(3 + Mix(seed + static_cast<uint64_t>(rounds)) % 7);
    INFO(options.worker_failpoints);
    Node node(options);
    for (int done = 0; done < calls;) {
      const uint64_t base = seed + 1'000'000 * static_cast<uint64_t>(++rounds);
      std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> large, fragile;
      std::vector<sheaf::ObjectRef<uint64_t>> small;
      std::vector<sheaf::ObjectRef<std::vector<sheaf::ObjectRef<std::vector<uint64_t>>>>> nested;
      for (uint64_t i = 0; i < 20; ++i, ++done) {
        large.push_back(sheaf::Task(KillsMarkedLarge).Retries(-1).Remote(retried.path(), base + i));
        small.push_back(
            sheaf::Task(KillsMarked).Retries(-1).Remote(retried.path(), base + 1000 + i));
        fragile.push_back(sheaf::Task(KillsMarkedLarge).Retries(0).Remote(once.path(), base + i));
        if (i % 5 == 0)
          nested.push_back(sheaf::Task(KillsNested).Retries(-1).Remote(base + 2000 + i));
      }
      for (uint64_t i = 0; i < 20; ++i) {
        CHECK(AreValues(sheaf::Get(large[i], 60s), base + i, kLarge));
        CHECK(sheaf::Get(small[i], 60s) == Mix(base + 1000 + i));
        const auto result = sheaf::TryGet(fragile[i], 60s);
        if (result.ok()) {
          ++values;
          CHECK(AreValues(*result, base + i, kLarge));
        } else {
          ++crashed;
          CHECK(result.kind() == sheaf::ErrorKind::kWorkerCrashed);
        }
      }
      for (uint64_t i = 0; i < nested.size(); ++i) {
        // The maker owns them: it may be dead by now, but never are they wrong.
        const auto inner = sheaf::Get(nested[i], 60s);
        for (uint64_t j = 0; j < inner.size(); ++j) {
          const auto result = sheaf::TryGet(inner[j], 60s);
          if (result.ok()) {
            CHECK(AreValues(*result, base + 2000 + 5 * i + j, kLarge));
          } else {
            CHECK(result.kind() == sheaf::ErrorKind::kOwnerDied);
          }
        }
      }
    }
    CHECK(once.Most() <= 1);
    for (const auto& [call, count] : retried.Counts()) twice += count > 1;
    died += Metric("sheaf_worker_deaths_total", "cause=\"signalled\"");
    node.RequireQuiet();
  }
  CHECK(died > 0);
  std::ostringstream words;
  words << died << " workers died at 4 places, " << rounds * 40 << " calls with retries right ("
        << twice << " of them ran more than once), without retries " << values << " values and "
        << crashed << " WorkerCrashed, none ran twice, " << Seconds(Clock::now() - begin) << " s";
  Figures("3", words.str());
}

TEST_CASE("row 4: a task that always kills its worker ends in an error, and others go on",
          "[row4]") {
  Node node({});
  const Scratch scratch;
  const RunMarks marks(scratch.path());
  const auto quiet_begin = Clock::now();
  size_t alone = 0;
  while (Clock::now() - quiet_begin < 500ms)
    sheaf::Get(sheaf::Task(KillsSmall).Remote(uint64_t{alone++}), 20s);
  const double alone_rate = static_cast<double>(alone) / Seconds(Clock::now() - quiet_begin);
  const auto begin = Clock::now();
  const auto poison = sheaf::Task(KillsPoison).Retries(3).Remote(marks.path());
  size_t done = 0;
  while (!sheaf::IsReady(poison) && Clock::now() - begin < 60s) {
    sheaf::Get(sheaf::Task(KillsSmall).Remote(uint64_t{done++}), 20s);
  }
  const double beside_rate = static_cast<double>(done) / Seconds(Clock::now() - begin);
  const auto result = sheaf::TryGet(poison, 20s);
  CHECK(result.kind() == sheaf::ErrorKind::kWorkerCrashed);
  CHECK(marks.Most() == 4);
  CHECK(done > 10);
  node.RequireQuiet();
  std::ostringstream words;
  words << "4 attempts in " << Seconds(Clock::now() - begin) << " s, others " << beside_rate
        << " tasks/s meanwhile, " << alone_rate << " without it";
  Figures("4", words.str());
}

}  // namespace faults
