// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Row 11: the process that runs the GCS is killed at random moments under load, and goes on with
// its disk. On one node that process is the whole head (`sheaf node`), so running work ends with
// it; what was acknowledged must be there afterwards. Row 14: the disk of the GCS is full.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

uint64_t ControlSmall(uint64_t x) { return Mix(x); }

class ControlClerk {
 public:
  ControlClerk() = default;
  int Pid() const { return getpid(); }
};

SHEAF_REMOTE(ControlSmall);
SHEAF_ACTOR(ControlClerk, sheaf::Constructor<>, &ControlClerk::Pid);

// What writers were told is durable.
class Acknowledged {
 public:
  void Add(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::map<std::string, std::string> values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

}  // namespace

TEST_CASE(
    "row 11: the head is killed at random moments under load and resumed: nothing acknowledged is "
    "lost",
    "[row11]") {
  const int kills = Count(8, 200);
  NodeOptions options;
  options.daemon = true;
  options.store_bytes = 32 << 20;
  Node node(options);
  std::mt19937_64 random(seed);
  Acknowledged acknowledged;
  std::vector<double> back_ms;
  int names = 0;
  uint64_t tasks = 0;
  double slowest_end = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < kills; ++round) {
    std::atomic<bool> wrong{false};
    std::atomic<uint64_t> done{0};
    std::vector<std::thread> threads;
    for (int writer = 0; writer < 3; ++writer) {
      threads.emplace_back([&, writer] {
        for (int i = 0;; ++i) {
          const std::string key =
              std::to_string(round) + "-" + std::to_string(writer) + "-" + std::to_string(i % 40);
          const std::string value =
              key + " " + std::to_string(Mix(seed + static_cast<uint64_t>(i)));
          if (KeyPut(key, value) != sheaf::ErrorKind::kNone) return;
          // The next value of the same key may be written and not acknowledged: then either is
          // right.
          acknowledged.Add(key, value);
        }
      });
    }
    threads.emplace_back([&] {  // Work goes on meanwhile, and ends in a typed error.
      try {
        for (uint64_t i = 0;; ++i, ++done)
          wrong = wrong || sheaf::Get(sheaf::Task(ControlSmall).Remote(i), 20s) != Mix(i);
      } catch (const sheaf::Error&) {
      }
    });
    const std::string name = "clerk-" + std::to_string(round);
    bool named = false;
    threads.emplace_back([&] {
      try {
        const auto clerk =
            sheaf::Actor<ControlClerk>().Name(name).Detached().MaxRestarts(-1).Remote();
        named = true;  // The name was durable before Remote returned.
      } catch (const sheaf::Error&) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(5'000 + random() % 150'000));
    const auto killed = Clock::now();
    node.Kill();
    for (std::thread& thread : threads) thread.join();
    slowest_end = std::max(slowest_end, Seconds(Clock::now() - killed));
    CHECK_FALSE(wrong);
    tasks += done;
    const auto resumed = Clock::now();
    node.Resume();
    CHECK_NOTHROW(KeyGet("nothing"));
    back_ms.push_back(1000 * Seconds(Clock::now() - resumed));
    // Of this round all, of earlier ones some.
    const std::string prefix = std::to_string(round) + "-";
    for (const auto& [key, value] : acknowledged.values()) {
      if (!key.starts_with(prefix) && random() % 64 != 0) continue;
      const std::optional<std::string> found = KeyGet(key);
      INFO("key " << key);
      REQUIRE(found.has_value());
      if (*found == value) continue;
      // The one write that was not answered.
      CHECK(found->substr(0, found->find(' ')) == key);
      CHECK(std::stoull(key.substr(key.rfind('-') + 1)) < 40);
    }
    // It went down with its node, and starts again under its name.
    if (named && round % (LongForm() ? 10 : 2) == 0) {
      ++names;
      auto clerk = sheaf::GetActor<ControlClerk>(name);
      CHECK(sheaf::Get(clerk.Task(&ControlClerk::Pid).Retries(-1).Remote(), 20s) > 0);
      sheaf::Kill(clerk);
    }
  }
  std::sort(back_ms.begin(), back_ms.end());
  CHECK(slowest_end < 10);
  std::ostringstream words;
  words << kills << " kills of the head, " << acknowledged.values().size() << " keys and " << names
        << " names kept, " << tasks << " tasks meanwhile, all waits ended " << slowest_end
        << " s after the kill at the latest, back with the first read after p50 "
        << back_ms[back_ms.size() / 2] << " ms, at most " << back_ms.back() << " ms, "
        << Seconds(Clock::now() - begin) << " s";
  Figures("11", words.str());
}

TEST_CASE(
    "row 14: the disk of the GCS is full: a typed error, reads and tasks go on, and it recovers by "
    "itself",
    "[row14]") {
  const Scratch disk(16 << 20);
  if (!disk.ok()) {
    std::cout << "SKIPPED: row 14 needs the right to mount a tmpfs" << std::endl;
    return;
  }
  NodeOptions options;
  options.daemon = true;
  options.directory = disk.path() + "/sheaf";
  options.store_bytes = 32 << 20;
  Node node(options);
  REQUIRE(KeyPut("before", "1") == sheaf::ErrorKind::kNone);
  double back = 0;
  const int rounds = Count(2, 20);
  for (int round = 0; round < rounds; ++round) {
    std::map<std::string, std::string> acknowledged;
    FullDisk full(disk.path());
    sheaf::ErrorKind kind = sheaf::ErrorKind::kNone;
    const auto begin = Clock::now();
    for (int i = 0; kind == sheaf::ErrorKind::kNone && Clock::now() - begin < 30s; ++i) {
      const std::string key = "k" + std::to_string(i % 16),
                        value = std::to_string(round) + std::string(200'000, 'v');
      kind = KeyPut(key, value);
      if (kind == sheaf::ErrorKind::kNone) acknowledged[key] = value;
    }
    CHECK(kind == sheaf::ErrorKind::kGcsStorageFull);
    CHECK_THROWS_AS(sheaf::Actor<ControlClerk>().Name("late").Detached().Remote(),
                    sheaf::GcsStorageFullError);
    for (const auto& [key, value] : acknowledged) CHECK(KeyGet(key) == value);
    CHECK(KeyGet("before") == "1");
    for (uint64_t i = 0; i < 100; ++i)
      CHECK(sheaf::Get(sheaf::Task(ControlSmall).Remote(i), 20s) == Mix(i));
    full.Free();
    const auto freed = Clock::now();
    CHECK(WaitUntil(
        30s, [&] { return KeyPut("after", std::to_string(round)) == sheaf::ErrorKind::kNone; }));
    back = std::max(back, Seconds(Clock::now() - freed));
    CHECK(KeyGet("after") == std::to_string(round));
  }
  const auto clerk = sheaf::Actor<ControlClerk>().Name("late").Detached().Remote();
  CHECK(sheaf::Get(clerk.Task(&ControlClerk::Pid).Remote(), 20s) > 0);
  sheaf::Kill(clerk);
  node.RequireQuiet();
  std::ostringstream words;
  words << rounds
        << " times full, each write and name refused with GcsStorageFull, writes taken again after "
           "at most "
        << back << " s, without a restart";
  Figures("14", words.str());
}

}  // namespace faults
