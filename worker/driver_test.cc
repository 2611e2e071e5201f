// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/driver.h"

#include <algorithm>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "shm/usable_cores.h"
#include "worker/core/core_node_for_test.h"
#include "worker/current_call.h"

namespace sheaf {
namespace driver_test {

constexpr uint32_t kBell = 1;
const uint32_t kSleepers = 120 * std::max(UsableCores(), 2);
constexpr Nanos kLong = 30 * kSecond;  // Nothing here takes so long.

// A driver over rings that nobody writes into.
struct DriverTest : FrameHandler, Driver::Host {
  void OnFrame(ProcessId, const Frame&) override {}
  void OnMalformed(ProcessId) override {}
  void OnTick() override { ++ticks; }

  std::unique_ptr<Driver> Make(bool of_user, std::function<bool()> interrupted = nullptr) {
    return std::make_unique<Driver>(Driver::Deps{.mailbox = mailbox,
                                                 .core = *node.core,
                                                 .frames = *this,
                                                 .host = *this,
                                                 .of_user = of_user,
                                                 .interrupted = std::move(interrupted)});
  }
  void SendToItself() {  // Something comes, as from the rings.
    node.core->transport.To(node.core->self).Send(Lane::kControl, FrameKind::kTakeBack, "");
  }
  // Sends to more processes that sleep than may be woken at once.
  void SendToSleepers() {
    for (uint32_t i = 0; i < kSleepers; ++i) {
      UniqueFd pair = MakeSegment("ring pair", kRingPairBytes).value();
      REQUIRE(mailbox.AddRing({1, 100 + i}, pair.get(), true, 10 + i).ok());
      SetBell(bells()[10 + i], BellState::kAsleep);
    }
    for (uint32_t i = 0; i < kSleepers; ++i)
      mailbox.To({1, 100 + i}).Send(Lane::kWork, FrameKind::kPushTask, "news");
  }
  bool AllAreAwake() {
    for (uint32_t i = 0; i < kSleepers; ++i) {
      if (bells()[10 + i].state != static_cast<uint32_t>(BellState::kAwake)) return false;
    }
    return true;
  }
  Bell* bells() { return reinterpret_cast<Bell*>(board.data()); }
  static Nanos In(Nanos duration) { return MonotonicNow() + duration; }

  UniqueFd board_fd = MakeSegment("bells", kBellBoardBytes).value();
  Mapping board = Mapping::Map(board_fd.get(), 0, kBellBoardBytes, Access::kReadWrite).value();
  Mailbox mailbox{reinterpret_cast<Bell*>(board.data()), kBell, [](ProcessId) {}};
  CoreNode node;
  int ticks = 0;
  std::unique_ptr<Driver> driver = Make(/*of_user=*/true);
};

SCENARIO("a wait ends when it has what it waits for, or its time has passed") {
  DriverTest test;
  Driver::Lock lock(*test.driver);
  CHECK(test.driver->holds_lock());
  CHECK(test.driver->DriveUntil(lock, kForever, [] { return true; }).ok());
  const absl::Status late =
      test.driver->DriveUntil(lock, DriverTest::In(20 * kMillisecond), [] { return false; });
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(test.ticks > 0);
  CHECK(test.driver->sleeps() > 0);
}

SCENARIO("who waits beside the thread that drives is woken when something has changed") {
  DriverTest test;
  bool changed = false, driven = false;
  const auto wait_for = [&](bool& what) {
    Driver::Lock lock(*test.driver);
    return test.driver->DriveUntil(lock, DriverTest::In(kLong), [&] { return what; });
  };
  absl::Status first, second;
  std::thread a([&] { first = wait_for(changed); });
  std::thread b([&] { second = wait_for(driven); });
  {
    Driver::Lock lock(*test.driver);
    changed = true;
    test.driver->Recheck();
  }
  a.join();
  CHECK(first.ok());
  {
    Driver::Lock lock(*test.driver);
    driven = true;
    test.driver->Recheck();
  }
  b.join();
  CHECK(second.ok());
}

SCENARIO("a brief wait ends with what it waits for, or soon, and not at all where it was in vain") {
  DriverTest test;
  Driver::Lock lock(*test.driver);
  CHECK(test.driver->DriveBriefly(lock, [] { return true; }));
  test.SendToItself();
  int asked = 0;
  CHECK(test.driver->DriveBriefly(lock, [&] { return ++asked == 2; }));
  CHECK(asked == 2);
  const Nanos begun = MonotonicNow();
  int looks = 0;
  for (int i = 0; i < 1000; ++i) {
    test.SendToItself();
    const int before = asked;
    CHECK_FALSE(test.driver->DriveBriefly(lock, [&] { return ++asked, false; }));
    looks += asked - before > 1;  // It has looked at the rings, not only asked.
  }
  CHECK(looks > 4);
  CHECK(looks < 100);
  CHECK(MonotonicNow() - begun < kLong);
}

SCENARIO("who drives hears of what another thread's brief wait has taken from the rings") {
  DriverTest test;
  test.driver = test.Make(/*of_user=*/false);
  const Nanos begun = MonotonicNow();
  for (int i = 0; i < 20; ++i) {
    bool came = false;
    const uint64_t sleeps = [&] {
      const Driver::Lock lock(*test.driver);
      return test.driver->sleeps();
    }();
    absl::Status status;
    std::thread drives([&] {
      Driver::Lock lock(*test.driver);
      status = test.driver->DriveUntil(lock, DriverTest::In(kLong), [&] { return came; });
    });
    REQUIRE(WaitUntil(kLong, [&] {
      const Driver::Lock lock(*test.driver);
      return test.driver->sleeps() > sleeps;
    }));
    {
      Driver::Lock lock(*test.driver);
      test.SendToItself();
      int asked = 0;
      CHECK(test.driver->DriveBriefly(lock, [&] { return came = ++asked == 2; }));
    }
    drives.join();
    CHECK(status.ok());
  }
  // Without a call it finds out when its sleep ends, after kLongestSleep.
  CHECK(MonotonicNow() - begun < 20 * kLongestSleep / 4);
}

SCENARIO("all waits end with the driver") {
  DriverTest test;
  std::vector<absl::Status> ended(3);
  std::vector<std::thread> threads;
  for (absl::Status& status : ended) {
    threads.emplace_back([&] {
      Driver::Lock lock(*test.driver);
      status = test.driver->DriveUntil(lock, DriverTest::In(kLong), [] { return false; });
    });
  }
  {
    Driver::Lock lock(*test.driver);
    test.driver->End("the raylet has ended");
    test.driver->End("this is too late");
    CHECK(test.driver->ended());
    test.driver->CallDriver();
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : ended) {
    CHECK(absl::IsAborted(status));
    CHECK(status.message() == "the raylet has ended");
  }
  Driver::Lock lock(*test.driver);
  CHECK(test.driver->is_alone());
}

SCENARIO("a wait is given up when the user says so") {
  DriverTest test;
  int asked = 0;
  test.driver = test.Make(/*of_user=*/true, [&] { return ++asked == 2; });
  Driver::Lock lock(*test.driver);
  const absl::Status status =
      test.driver->DriveUntil(lock, DriverTest::In(kLong), [] { return false; });
  CHECK(absl::IsCancelled(status));
  CHECK(asked == 2);
}

SCENARIO("a call that is cancelled waits no more") {
  DriverTest test;
  test.driver = test.Make(/*of_user=*/false);
  const std::atomic<bool> cancelled{true};
  current_call = {{TaskId::Make(kWorker, 5)}, &cancelled, 0};
  Driver::Lock lock(*test.driver);
  const absl::Status status =
      test.driver->DriveUntil(lock, DriverTest::In(kLong), [] { return false; });
  current_call = {};
  CHECK(absl::IsCancelled(status));
}

SCENARIO("the owner of a call hears of its end when the lock is left") {
  DriverTest test;
  std::shared_ptr<CallExecution> call = test.node.Call({});
  REQUIRE(call != nullptr);
  Driver::Lock lock(*test.driver);
  call.reset();
  CHECK(test.node.sent.Count(FrameKind::kTaskReply) == 0);
  lock.Unlock();
  CHECK(!test.driver->holds_lock());
  lock.Relock();
  CHECK(test.node.sent.Count(FrameKind::kTaskReply) == 1);
}

SCENARIO("the background thread looks after the rings when nobody waits, until it is stopped") {
  DriverTest test;
  std::thread background([&] { test.driver->RunBackground(); });
  while (true) {
    const Driver::Lock lock(*test.driver);
    if (test.ticks > 1) break;
  }
  {
    Driver::Lock lock(*test.driver);
    test.driver->Stop();
    CHECK(test.driver->stopping());
    CHECK(absl::IsAborted(test.driver->end()));
  }
  Knock(test.mailbox.bell());
  background.join();
}

SCENARIO("bells that were put off are rung by whoever waits") {
  DriverTest test;
  Driver::Lock lock(*test.driver);
  test.SendToSleepers();
  CHECK_FALSE(test.AllAreAwake());
  CHECK(test.driver->DriveUntil(lock, DriverTest::In(kLong), [&] { return test.AllAreAwake(); })
            .ok());
}

SCENARIO("bells that were put off are rung soon by the background thread when nobody waits") {
  DriverTest test;
  std::thread background([&] { test.driver->RunBackground(); });
  const Nanos begun = MonotonicNow();
  {
    const Driver::Lock lock(*test.driver);
    test.SendToSleepers();
    CHECK_FALSE(test.AllAreAwake());
  }
  CHECK(WaitUntil(kLong, [&] { return test.AllAreAwake(); }));
  CHECK(MonotonicNow() - begun < kSecond);  // Its ticks alone would take ten times 200 ms.
  {
    Driver::Lock lock(*test.driver);
    test.driver->Stop();
  }
  Knock(test.mailbox.bell());
  background.join();
}

SCENARIO("bells that were put off are rung soon though somebody goes on sending, now and then") {
  DriverTest test;
  std::thread background([&] { test.driver->RunBackground(); });
  {
    const Driver::Lock lock(*test.driver);
    test.SendToSleepers();
    CHECK_FALSE(test.AllAreAwake());
  }
  // Several sends for each look of the background thread, to one that is rung last, and no poll.
  // The sends alone ring as many as there are cores with each sixteenth: 1,900 sends for all.
  int sends = 0;
  for (bool all = false; !all && sends < 1000; ++sends) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const Driver::Lock lock(*test.driver);
    all = test.AllAreAwake();
    test.mailbox.To({1, 100 + kSleepers - 1}).Send(Lane::kWork, FrameKind::kPushTask, "more");
  }
  CHECK(sends < 1000);
  {
    Driver::Lock lock(*test.driver);
    test.driver->Stop();
  }
  Knock(test.mailbox.bell());
  background.join();
}

SCENARIO("bells that were put off are rung when the driver ends") {
  DriverTest test;
  Driver::Lock lock(*test.driver);
  test.SendToSleepers();
  CHECK_FALSE(test.AllAreAwake());
  test.driver->End("the end");
  CHECK(test.AllAreAwake());
}

}  // namespace driver_test
}  // namespace sheaf
