// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Row 5: owners die while others hold their objects. Row 35: calls are cancelled.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

constexpr size_t kLarge = 20'000;

int OwnersSlow(int milliseconds) {
  for (int i = 0; i < milliseconds && !sheaf::IsCancelled(); ++i) std::this_thread::sleep_for(1ms);
  if (sheaf::IsCancelled()) throw std::runtime_error("stopped");
  return milliseconds;
}
int OwnersWithChild(int milliseconds);
int OwnersAfter(int milliseconds, int more) { return OwnersSlow(milliseconds) + more; }

class OwnersKeeper {
 public:
  OwnersKeeper() = default;
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> Make(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) mine_.push_back(sheaf::Put(Values(i, kLarge)));
    return mine_;
  }
  int Pid() const { return getpid(); }

 private:
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> mine_;
};

// Borrows objects, and says later what they are worth.
class OwnersBorrower {
 public:
  OwnersBorrower() = default;
  void Take(std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> refs) { refs_ = std::move(refs); }
  // Of each: 1 right, 0 its owner died, -1 wrong.
  std::vector<int> Look() const {
    std::vector<int> out;
    for (uint64_t i = 0; i < refs_.size(); ++i) {
      const auto value = sheaf::TryGet(refs_[i], 20s);
      if (!value.ok()) {
        out.push_back(value.kind() == sheaf::ErrorKind::kOwnerDied ? 0 : -1);
      } else {
        out.push_back(AreValues(*value, i, kLarge) ? 1 : -1);
      }
    }
    return out;
  }

 private:
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> refs_;
};

SHEAF_REMOTE(OwnersSlow, OwnersAfter);
SHEAF_REMOTE(OwnersWithChild);
SHEAF_ACTOR(OwnersKeeper, sheaf::Constructor<>, &OwnersKeeper::Make, &OwnersKeeper::Pid);
SHEAF_ACTOR(OwnersBorrower, sheaf::Constructor<>, &OwnersBorrower::Take, &OwnersBorrower::Look);

int OwnersWithChild(int milliseconds) {
  return sheaf::Get(sheaf::Task(OwnersSlow).Remote(milliseconds));
}

}  // namespace

TEST_CASE("row 5: an owner is killed while others hold its objects: each is there, or OwnerDied",
          "[row5]") {
  Node node({});
  size_t adopted = 0, died = 0;
  const int owners = Count(3, 100);
  double slowest = 0;
  for (int round = 0; round < owners; ++round) {
    auto keeper = sheaf::Actor<OwnersKeeper>().Remote();
    auto borrower = sheaf::Actor<OwnersBorrower>().Remote();
    const int owner = sheaf::Get(keeper.Task(&OwnersKeeper::Pid).Remote(), 20s);
    const auto refs = sheaf::Get(keeper.Task(&OwnersKeeper::Make).Remote(uint64_t{20}), 20s);
    REQUIRE(refs.size() == 20);
    const sheaf::Array<uint64_t> read =
        sheaf::Get(sheaf::ObjectRef<sheaf::Array<uint64_t>>(refs[0]), 20s);
    auto taken = borrower.Task(&OwnersBorrower::Take).Remote(refs);
    // Else the references are in transit when the owner dies.
    if (round % 2 == 0) sheaf::Get(taken, 20s);
    kill(owner, SIGKILL);
    for (uint64_t i = 0; i < refs.size(); ++i) {
      const auto begin = Clock::now();
      const auto value = sheaf::TryGet(refs[i], 20s);
      slowest = std::max(slowest, Seconds(Clock::now() - begin));
      if (value.ok()) {
        CHECK(AreValues(*value, i, kLarge));
        ++adopted;
      } else {
        CHECK(value.kind() == sheaf::ErrorKind::kOwnerDied);
        ++died;
      }
    }
    for (const int seen : sheaf::Get(borrower.Task(&OwnersBorrower::Look).Remote(), 60s))
      CHECK(seen >= 0);
    CHECK(AreValues(read, 0, kLarge));
  }
  CHECK(slowest < 10);
  node.RequireQuiet();
  std::ostringstream words;
  words << owners << " owners killed, " << adopted << " objects adopted, " << died
        << " OwnerDied, slowest answer " << slowest << " s";
  Figures("5", words.str());
}

TEST_CASE("row 35: calls are cancelled in every state, and always end", "[row35]") {
  Node node({});
  std::mt19937_64 random(seed);
  const int count = Count(60, 1000);
  const auto begin = Clock::now();
  int forced = 0;
  for (int i = 0; i < count; ++i) {
    sheaf::ObjectRef<int> ref;
    sheaf::ObjectRef<int> before;
    switch (random() % 4) {
      case 0:
        ref = sheaf::Task(OwnersSlow).Remote(5000);
        break;
      case 1:
        ref = sheaf::Task(OwnersWithChild).Remote(5000);
        break;
      case 2:
        ref = sheaf::Task(OwnersSlow).Cpus(1000).Remote(5000);
        break;  // Waits for room that never comes.
      default:  // Waits for an argument.
        before = sheaf::Task(OwnersSlow).Remote(5000);
        ref = sheaf::Task(OwnersAfter).Remote(before, 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const bool force = random() % 8 == 0;
    forced += force;
    sheaf::Cancel(ref, force, true);
    if (before) sheaf::Cancel(before, force, true);
    const auto result = sheaf::TryGet(ref, 20s);
    CHECK_FALSE(result.ok());
    CHECK(result.kind() == sheaf::ErrorKind::kTaskCancelled);
  }
  node.RequireQuiet();
  std::ostringstream words;
  words << count << " cancelled (" << forced << " by force), " << Seconds(Clock::now() - begin)
        << " s";
  Figures("35", words.str());
}

}  // namespace faults
