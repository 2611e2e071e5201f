// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/argument_ledger.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace argument_ledger_test {

constexpr uint64_t kCapacity = 1000;
constexpr ProcessId kDriver{1, 1};

ProcessId Worker(uint32_t number) { return {1, 10 + number}; }

struct Ledger {
  ArgumentLedger ledger{kCapacity};
  Nanos now = 0;
  bool is_short = false;

  static HeldObject Object(uint64_t number, uint64_t bytes) {
    return {ObjectId::Make(kDriver, number, 1), bytes};
  }
  // Worker `number` asks for its call 1.
  void Ask(uint32_t number, std::vector<HeldObject> objects, ProcessId caller = kDriver) {
    CHECK(ledger.Ask({Worker(number), 1}, caller, objects, now));
  }
  void Ask(uint32_t number, uint64_t bytes, ProcessId caller = kDriver) {
    Ask(number, {Object(number, bytes)}, caller);
  }
  void End(uint32_t number) { ledger.End({Worker(number), 1}, now); }
  void Suspend(uint32_t number, bool suspended = true) {
    ledger.SetSuspended({Worker(number), 1}, suspended);
  }
  // Those who are admitted now.
  std::vector<uint32_t> Admitted() {
    std::vector<uint32_t> workers;
    for (const auto& [process, ticket] : ledger.Admit(now, is_short))
      workers.push_back(process.process - 10);
    return workers;
  }
};

using Workers = std::vector<uint32_t>;

TEST_CASE("calls are admitted up to a share of the store, in the order of asking", "[arguments]") {
  Ledger at;
  for (uint32_t i = 1; i <= 8; ++i) at.Ask(i, 125);
  at.Ask(9, 1);  // It would fit, and waits for its turn.
  CHECK(at.Admitted() == Workers{1, 2, 3, 4, 5});
  CHECK(at.ledger.held_bytes() == 625);
  CHECK(at.Admitted().empty());
  at.End(3);
  CHECK(at.Admitted() == Workers{6});
  at.End(1);
  at.End(6);
  CHECK(at.Admitted() == Workers{7, 8, 9});
}

TEST_CASE("a call alone is admitted whatever it holds", "[arguments]") {
  Ledger at;
  at.is_short = true;
  at.Ask(1, UINT64_MAX);
  at.Ask(2, 1);
  CHECK(at.Admitted() == Workers{1});
  CHECK(at.ledger.held_bytes() == kCapacity);
  at.End(1);
  CHECK(at.Admitted() == Workers{2});
}

TEST_CASE("what many calls hold counts once", "[arguments]") {
  Ledger at;
  for (uint32_t i = 1; i <= 50; ++i)
    at.Ask(i, {Ledger::Object(100, 600), Ledger::Object(100, 600), Ledger::Object(i, 1)});
  CHECK(at.Admitted().size() == 50);
  CHECK(at.ledger.held_bytes() == 650);
  for (uint32_t i = 1; i <= 50; ++i) at.End(i);
  CHECK(at.ledger.held_bytes() == 0);
}

TEST_CASE("what the size of an object is said to be later changes nothing", "[arguments]") {
  Ledger at;
  at.Ask(1, {Ledger::Object(100, 0)});
  CHECK(at.Admitted() == Workers{1});
  at.Ask(2, {Ledger::Object(100, 500)});
  CHECK(at.Admitted() == Workers{2});
  at.End(1);
  at.End(2);
  CHECK(at.ledger.held_bytes() == 0);
}

TEST_CASE("a call for which a suspended one waits comes first", "[arguments]") {
  Ledger at;
  at.Ask(1, 500);
  at.Ask(2, 500);  // Not made by a call.
  at.Ask(3, 500, Worker(1));
  CHECK(at.Admitted() == Workers{1});
  at.Suspend(1);
  CHECK(at.Admitted() == Workers{3});
  at.Suspend(1, false);
  at.End(1);
  CHECK(at.Admitted().empty());
  at.End(3);
  CHECK(at.Admitted() == Workers{2});
}

TEST_CASE("those for which suspended ones wait leave room in the store", "[arguments]") {
  Ledger at;
  for (uint32_t i = 1; i <= 5; ++i) at.Ask(i, 120);
  CHECK(at.Admitted().size() == 5);
  for (uint32_t i = 1; i <= 5; ++i) at.Suspend(i);
  for (uint32_t i = 1; i <= 5; ++i) at.Ask(5 + i, 120, Worker(i));
  CHECK(at.Admitted() == Workers{6, 7});  // 600 and 240.
  at.End(6);
  CHECK(at.Admitted() == Workers{8});
  at.End(7);
  at.End(8);
  at.is_short = true;
  CHECK(at.Admitted() == Workers{9});  // Nothing else can go on.
  at.is_short = false;
  CHECK(at.Admitted() == Workers{10});
}

TEST_CASE("nobody is admitted while room is short, but for a time", "[arguments]") {
  Ledger at;
  at.Ask(1, 100);
  CHECK(at.Admitted() == Workers{1});
  at.is_short = true;
  at.Ask(2, 100);
  at.now = ArgumentLedger::kLongest - 1;
  CHECK(at.Admitted().empty());
  ++at.now;
  CHECK(at.Admitted() == Workers{2});
  at.Ask(3, 100);
  at.is_short = false;
  CHECK(at.Admitted() == Workers{3});
}

TEST_CASE("when nothing ends the oldest is admitted, one at a time", "[arguments]") {
  Ledger at;
  for (uint32_t i = 1; i <= 4; ++i) at.Ask(i, 600);
  CHECK(at.Admitted() == Workers{1});
  at.now += ArgumentLedger::kPatience - 1;
  CHECK(at.Admitted().empty());
  ++at.now;
  CHECK(at.Admitted() == Workers{2});
  CHECK(at.Admitted().empty());
  at.now += ArgumentLedger::kPatience / 2;
  at.End(1);  // Something ended: there is hope.
  at.now += ArgumentLedger::kPatience / 2;
  CHECK(at.Admitted().empty());
  at.now += ArgumentLedger::kPatience / 2;
  CHECK(at.Admitted() == Workers{3});
  // Those that are suspended again and again are no hope.
  for (int i = 0; i < 10; ++i) {
    at.Suspend(2, i % 2 == 0);
    at.now += ArgumentLedger::kPatience / 10;
  }
  CHECK(at.Admitted() == Workers{4});
}

TEST_CASE("beside calls that stand others are let in at once, as far as half of what is left",
          "[arguments]") {
  Ledger at;
  at.Ask(1, 660);
  CHECK(at.Admitted() == Workers{1});
  at.now += ArgumentLedger::kPatience - 1;
  for (uint32_t i = 2; i <= 4; ++i) at.Ask(i, 60);
  CHECK(at.Admitted().empty());
  ++at.now;
  CHECK(at.Admitted() == Workers{2, 3});  // 780, of 830.
  for (uint32_t i = 4; i <= 20; ++i) {
    at.Ask(i + 1, 60);
    at.End(i - 2);
    CHECK(at.Admitted() == Workers{i});
  }
  at.End(1);  // It stands no more.
  at.Ask(30, 600);
  CHECK(at.Admitted() == Workers{21});
}

TEST_CASE("beside calls that stand one is let in that fits in the store", "[arguments]") {
  Ledger at;
  at.Ask(1, 800);
  CHECK(at.Admitted() == Workers{1});
  at.now += ArgumentLedger::kPatience;
  for (uint32_t i = 2; i <= 5; ++i) {
    at.Ask(i, 120);
    CHECK(at.Admitted() == Workers{i});
    at.Ask(i + 10, 1);
    CHECK(at.Admitted().empty());
    at.End(i);
    CHECK(at.Admitted() == Workers{i + 10});
    at.End(i + 10);
  }
  at.Ask(6, 160);  // Does not fit.
  CHECK(at.Admitted().empty());
  at.End(1);
  CHECK(at.Admitted() == Workers{6});
}

TEST_CASE("what calls for which suspended ones wait may hold grows as well", "[arguments]") {
  Ledger at;
  at.Ask(1, 800);
  CHECK(at.Admitted() == Workers{1});
  at.Suspend(1);
  at.Ask(2, 20, Worker(1));
  at.Ask(3, 60, Worker(1));
  CHECK(at.Admitted() == Workers{2});  // 850.
  at.now += ArgumentLedger::kPatience;
  CHECK(at.Admitted() == Workers{3});
}

TEST_CASE("nobody looks at what waits before something has changed", "[arguments]") {
  Ledger at;
  at.Ask(1, 600);
  at.Ask(2, 600);
  CHECK(at.Admitted() == Workers{1});
  const auto looks_in_vain = [&] {
    const uint64_t before = at.ledger.looks();
    for (int i = 0; i < 3; ++i) CHECK(at.Admitted().empty());
    return at.ledger.looks() - before;
  };
  CHECK(looks_in_vain() == 0);
  at.Ask(3, 100);
  CHECK(looks_in_vain() == 1);
  at.is_short = true;
  CHECK(looks_in_vain() == 1);
  at.now += ArgumentLedger::kPatience + 1;
  CHECK(looks_in_vain() == 0);
  at.is_short = false;
  CHECK(at.Admitted() == Workers{2});
  at.Ask(1, 600);  // Once more: it is answered.
  CHECK(at.Admitted() == Workers{1});
  at.Suspend(1);
  CHECK(looks_in_vain() == 1);
  at.End(2);
  CHECK(at.Admitted() == Workers{3});
}

TEST_CASE("a process that dies holds nothing and waits for nothing", "[arguments]") {
  Ledger at;
  at.Ask(1, 600);
  CHECK(at.ledger.Ask({Worker(1), 2}, kDriver, {}, 0));
  at.Ask(2, 600);
  at.Ask(3, 600);
  CHECK(at.Admitted() == Workers{1, 1});
  at.Suspend(1);
  at.Ask(1, 600);  // Once more: it is answered once more, unless it is dead.
  at.ledger.Forget(Worker(1), 0);
  at.ledger.Forget(Worker(2), 0);
  at.ledger.Forget(Worker(7), 0);
  CHECK(at.Admitted() == Workers{3});
  CHECK(at.ledger.size() == 1);
}

TEST_CASE("a question that is repeated is answered again", "[arguments]") {
  Ledger at;
  at.Ask(1, 600);
  at.Ask(2, 600);
  at.Ask(2, 600);
  CHECK(at.Admitted() == Workers{1});
  at.Ask(1, 100);
  CHECK(at.Admitted() == Workers{1});
  at.End(1);
  CHECK(at.Admitted() == Workers{2});
}

TEST_CASE("a process has no more calls than it may", "[arguments]") {
  Ledger at;
  for (uint64_t i = 0; i < ArgumentLedger::kMostOfOne; ++i)
    REQUIRE(at.ledger.Ask({Worker(1), i}, kDriver, {}, 0));
  CHECK_FALSE(at.ledger.Ask({Worker(1), ArgumentLedger::kMostOfOne}, kDriver, {}, 0));
  at.End(1);
  CHECK(at.ledger.Ask({Worker(1), ArgumentLedger::kMostOfOne}, kDriver, {}, 0));
}

// Against a count from the beginning, over random histories; at the end nothing is left.
TEST_CASE("whatever happens the sums are right and all are admitted", "[arguments]") {
  SeededRandom random(1);
  for (int run = 0; run < 50; ++run) {
    Ledger at;
    std::map<ArgumentLedger::Call, std::vector<HeldObject>> asked, admitted;
    const auto note = [&] {
      for (const ArgumentLedger::Call& call : at.ledger.Admit(at.now, at.is_short)) {
        const auto found = asked.extract(call);
        if (!found.empty()) admitted.insert({call, found.mapped()});
      }
    };
    for (int step = 0; step < 400; ++step) {
      const ArgumentLedger::Call call{Worker(static_cast<uint32_t>(random.Below(6))),
                                      random.Below(4)};
      at.is_short = random.OneIn(4);
      at.now += static_cast<Nanos>(random.Below(kSecond));
      switch (random.Below(5)) {
        case 0:
        case 1: {
          if (asked.contains(call) || admitted.contains(call)) break;
          std::vector<HeldObject> objects;
          for (uint64_t i = random.Below(4); i > 0; --i) {
            const uint64_t number = random.Below(10);
            objects.push_back(Ledger::Object(number, 50 * number));
          }
          CHECK(
              at.ledger.Ask(call, Worker(static_cast<uint32_t>(random.Below(6))), objects, at.now));
          asked[call] = objects;
          break;
        }
        case 2:
          at.ledger.SetSuspended(call, random.OneIn(2));
          break;
        case 3:
          at.ledger.End(call, at.now);
          asked.erase(call);
          admitted.erase(call);
          break;
        case 4:
          if (!random.OneIn(10)) break;
          at.ledger.Forget(call.first, at.now);
          std::erase_if(asked, [&](const auto& it) { return it.first.first == call.first; });
          std::erase_if(admitted, [&](const auto& it) { return it.first.first == call.first; });
      }
      note();
      std::map<ObjectId, uint64_t> held;
      for (const auto& [of, objects] : admitted) {
        for (const HeldObject& object : objects) held[object.id] = object.bytes;
      }
      uint64_t sum = 0;
      for (const auto& [id, bytes] : held) sum += bytes;
      REQUIRE(at.ledger.held_bytes() == sum);
      REQUIRE(at.ledger.waiting() == asked.size());
    }
    at.is_short = true;
    while (!asked.empty()) {
      const size_t before = asked.size();
      at.now += ArgumentLedger::kLongest;
      note();
      REQUIRE(asked.size() < before);
    }
    for (const auto& [call, objects] : admitted) at.ledger.End(call, at.now);
    CHECK(at.ledger.size() == 0);
    CHECK(at.ledger.held_bytes() == 0);
  }
}

}  // namespace argument_ledger_test
}  // namespace sheaf
