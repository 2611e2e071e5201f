// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Faults on one real node: processes are killed, crash and are cancelled while work goes on. The oracle of every row: each call
// ends in its one right value or a typed error, in bounded time, and afterwards all resources are free again.
//   SHEAF_FAULT_SEED    replays a run; printed at the start
//   SHEAF_FAULT_KILLS   how many processes row 1 kills (40; `./do soak faults` takes 1,000)
#define CATCH_CONFIG_RUNNER
#include <sheaf/sheaf.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <thread>

using namespace std::chrono_literals;

namespace {

uint64_t seed = 0;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Small(uint64_t x) {
  std::this_thread::sleep_for(std::chrono::microseconds(Mix(x) % 3000));
  return Mix(x);
}
std::vector<uint64_t> Large(uint64_t x) { return std::vector<uint64_t>(20'000, Mix(x)); }
uint64_t Check(sheaf::Array<uint64_t> values) {
  for (uint64_t value : values) {
    if (value != values[0]) return 0;
  }
  return values[0];
}
uint64_t Parent(uint64_t x);
int Poison() { raise(SIGKILL); return 0; }
int CrashWhileWriting() {
  auto building = sheaf::CreateArray<double>(4'000'000);
  for (size_t i = 0; i < building.size() / 2; ++i) building[i] = 1;
  raise(SIGSEGV);
  return 0;
}
std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> MakeAndStay(uint64_t count) {
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> refs;
  for (uint64_t i = 0; i < count; ++i) refs.push_back(sheaf::Put(std::vector<uint64_t>(20'000, Mix(i))));
  return refs;
}
int Pid() { return getpid(); }
int Slow(int milliseconds) {
  for (int i = 0; i < milliseconds && !sheaf::IsCancelled(); ++i) std::this_thread::sleep_for(1ms);
  if (sheaf::IsCancelled()) throw std::runtime_error("stopped");
  return milliseconds;
}
int WithChild(int milliseconds) { return sheaf::Get(sheaf::Task(Slow).Remote(milliseconds)); }
SHEAF_REMOTE(Small, Large, Check, Parent, Poison, CrashWhileWriting, MakeAndStay, Pid, Slow);
SHEAF_REMOTE(WithChild);
uint64_t Parent(uint64_t x) {
  auto a = sheaf::Task(Small).Retries(-1).Remote(x);
  auto b = sheaf::Task(Small).Retries(-1).Remote(x + 1);
  return sheaf::Get(a) ^ sheaf::Get(b);
}

class Keeper {
 public:
  Keeper() = default;
  uint64_t Add(uint64_t x) { return sum_ += x; }
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> Make(uint64_t count) {
    mine_ = MakeAndStay(count);
    return mine_;
  }
  int Pid() const { return getpid(); }

 private:
  uint64_t sum_ = 0;
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> mine_;
};
SHEAF_ACTOR(Keeper, sheaf::Constructor<>, &Keeper::Add, &Keeper::Make, &Keeper::Pid);

// Processes of this program but this one: workers, and the template they are forked from.
std::vector<pid_t> Workers() {
  std::vector<pid_t> pids;
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::error_code error;
    if (pid > 0 && pid != getpid() && std::filesystem::read_symlink(entry.path() / "exe", error) == self && !error) {
      pids.push_back(pid);
    }
  }
  return pids;
}

// O4: what was lent has come back.
void RequireQuiet() {
  const double total = sheaf::ClusterResources()["CPU"];
  double available = 0;
  for (int i = 0; i < 300 && available != total; ++i) {
    available = sheaf::AvailableResources()["CPU"];
    if (available != total) std::this_thread::sleep_for(50ms);
  }
  CHECK(available == total);
}

}  // namespace

TEST_CASE("row 1: workers are killed at random moments under mixed load; every value is right") {
  const char* text = std::getenv("SHEAF_FAULT_KILLS");
  const int kills_wanted = text != nullptr ? std::atoi(text) : 40;
  std::atomic<bool> stop{false};
  std::atomic<int> kills{0};
  std::thread killer([&] {
    std::mt19937_64 random(seed);
    while (!stop && kills < kills_wanted) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
      const std::vector<pid_t> workers = Workers();
      if (!workers.empty() && kill(workers[random() % workers.size()], SIGKILL) == 0) ++kills;
    }
  });
  auto keeper = sheaf::Actor<Keeper>().MaxRestarts(-1).MaxTaskRetries(-1).Remote();
  uint64_t round = 0;
  size_t wrong = 0;
  while (kills < kills_wanted) {
    std::vector<sheaf::ObjectRef<uint64_t>> small, parents, checks, calls;
    const uint64_t base = seed + 1000 * round++;
    for (uint64_t i = 0; i < 50; ++i) {
      small.push_back(sheaf::Task(Small).Retries(-1).Remote(base + i));
      calls.push_back(keeper.Task(&Keeper::Add).Remote(uint64_t{1}));
      if (i % 10 == 0) {
        parents.push_back(sheaf::Task(Parent).Retries(-1).Remote(base + i));
        checks.push_back(sheaf::Task(Check).Retries(-1).Remote(sheaf::Task(Large).Retries(-1).Remote(base + i)));
      }
    }
    for (uint64_t i = 0; i < 50; ++i) wrong += sheaf::Get(small[i], 60s) != Mix(base + i);
    for (uint64_t i = 0; i < parents.size(); ++i) {
      wrong += sheaf::Get(parents[i], 60s) != (Mix(base + 10 * i) ^ Mix(base + 10 * i + 1));
      wrong += sheaf::Get(checks[i], 60s) != Mix(base + 10 * i);
    }
    uint64_t last = sheaf::Get(calls[0], 60s);
    for (size_t i = 1; i < calls.size(); ++i) {
      const uint64_t value = sheaf::Get(calls[i], 60s);
      wrong += value != last + 1 && value > last;  // In order within an incarnation; a new one counts from 1.
      last = value;
    }
  }
  stop = true;
  killer.join();
  std::cout << "row 1: " << kills << " kills, " << round << " rounds, " << wrong << " wrong values\n";
  CHECK(wrong == 0);
  keeper = {};
  RequireQuiet();
}

TEST_CASE("row 2: user code crashes while it writes an unsealed object; its memory is used again") {
  for (int i = 0; i < 12; ++i) {  // 12 times 32 MB through a store of 128 MB.
    CHECK_THROWS_AS(sheaf::Get(sheaf::Task(CrashWhileWriting).Retries(0).Remote(), 20s), sheaf::WorkerCrashedError);
  }
  CHECK(sheaf::Get(sheaf::Task(Check).Remote(sheaf::Task(Large).Remote(uint64_t{5})), 20s) == Mix(5));
  RequireQuiet();
}

TEST_CASE("row 4: a task that always kills its worker ends in an error, and others go on") {
  const auto poison = sheaf::Task(Poison).Retries(3).Remote();
  size_t done = 0;
  while (!sheaf::IsReady(poison) && done < 100'000) {
    sheaf::Get(sheaf::Task(Small).Remote(uint64_t{done++}), 20s);
  }
  CHECK_THROWS_AS(sheaf::Get(poison, 20s), sheaf::WorkerCrashedError);
  CHECK(done > 10);
  RequireQuiet();
}

TEST_CASE("row 5: the owner of objects is killed while others hold them: each is there, or OwnerDied") {
  auto keeper = sheaf::Actor<Keeper>().Remote();
  const int owner = sheaf::Get(keeper.Task(&Keeper::Pid).Remote(), 20s);
  const auto refs = sheaf::Get(keeper.Task(&Keeper::Make).Remote(uint64_t{20}), 20s);
  REQUIRE(refs.size() == 20);
  const sheaf::Array<uint64_t> read = sheaf::Get(sheaf::ObjectRef<sheaf::Array<uint64_t>>(refs[0]), 20s);
  kill(owner, SIGKILL);
  size_t there = 0;
  for (uint64_t i = 0; i < refs.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto value = sheaf::TryGet(refs[i], 10s);
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
    if (value.ok()) {
      CHECK((*value)[0] == Mix(i));
      ++there;
    } else {
      CHECK(value.kind() == sheaf::ErrorKind::kOwnerDied);
    }
  }
  CHECK(read[19'999] == Mix(0));
  std::cout << "row 5: " << there << " of 20 adopted\n";
}

TEST_CASE("row 35: calls are cancelled in every state, and always end") {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 60; ++i) {
    const bool deep = random() % 2 == 0;
    auto ref = deep ? sheaf::Task(WithChild).Remote(5000) : sheaf::Task(Slow).Remote(5000);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    sheaf::Cancel(ref, random() % 8 == 0, true);
    const auto result = sheaf::TryGet(ref, 20s);
    CHECK_FALSE(result.ok());
    CHECK(result.kind() == sheaf::ErrorKind::kTaskCancelled);
  }
  RequireQuiet();
}

int main(int argc, char** argv) {
  const char* text = std::getenv("SHEAF_FAULT_SEED");
  seed = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
  sheaf::InitOptions options;
  options.cpus = 4;
  options.store_bytes = 128 << 20;
  options.log_to_driver = false;
  sheaf::Init(argc, argv, options);
  std::cout << "SHEAF_FAULT_SEED=" << seed << std::endl;
  const int result = Catch::Session().run(argc, argv);
  sheaf::Shutdown();
  return result;
}
