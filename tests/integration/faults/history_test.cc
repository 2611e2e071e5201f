// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Row 11, second part: what clients see of the control store's keys is one order of events, over
// kills of the head. The check itself is tested on histories made by hand.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/faults/linearizable.h"
#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

using Operation = KeyOperation;
using Kind = KeyOperation::Kind;

constexpr int kKeys = 4;
constexpr int kClients = 4;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

Operation Put(uint64_t value, int64_t called, int64_t answered = Operation::kNever) {
  return {Kind::kPut, value, false, called, answered};
}
Operation Get(uint64_t value, int64_t called, int64_t answered) {
  return {Kind::kGet, value, false, called, answered};
}
Operation Add(uint64_t value, bool added, int64_t called, int64_t answered) {
  return {Kind::kPutIfAbsent, value, added, called, answered};
}

}  // namespace

TEST_CASE("a history that has an order is linearizable", "[row11]") {
  CHECK(IsLinearizable({}));
  CHECK(IsLinearizable({Get(0, 1, 2), Put(7, 3, 4), Get(7, 5, 6)}));
  CHECK(IsLinearizable({Put(7, 1, 10), Get(7, 2, 3), Get(7, 4, 5)}));  // It took effect early.
  CHECK(IsLinearizable({Put(7, 1, 10), Get(0, 2, 3), Get(7, 4, 5)}));
  CHECK(IsLinearizable({Put(7, 1), Get(0, 2, 3), Get(7, 4, 5)}));  // Unanswered: at any time,
  CHECK(IsLinearizable({Put(7, 1), Get(0, 2, 3), Get(0, 4, 5)}));  // or never.
  CHECK(IsLinearizable({Add(1, true, 1, 5), Add(2, false, 2, 4), Get(1, 6, 7)}));
}

TEST_CASE("a history without an order is not", "[row11]") {
  CHECK_FALSE(IsLinearizable({Put(7, 1, 2), Get(0, 3, 4)}));  // An acknowledged write is lost.
  CHECK_FALSE(IsLinearizable({Put(7, 1, 2), Put(8, 3, 4), Get(7, 5, 6)}));  // A stale read.
  CHECK_FALSE(IsLinearizable({Put(7, 1), Get(7, 2, 3), Get(0, 4, 5)}));     // It came and went.
  CHECK_FALSE(IsLinearizable({Get(7, 1, 2), Put(7, 3, 4)}));                // From the future.
  CHECK_FALSE(IsLinearizable({Put(7, 1, 9), Put(8, 1, 9), Get(7, 10, 11), Get(8, 12, 13)}));
  CHECK_FALSE(IsLinearizable({Add(1, true, 1, 5), Add(2, true, 2, 4)}));  // Two firsts.
  CHECK_FALSE(IsLinearizable({Add(1, false, 1, 2)}));
}

TEST_CASE("row 11: what clients see of a key is one order of events, over kills of the head",
          "[row11]") {
  const int kills = Count(4, 40);
  NodeOptions options;
  options.daemon = true;
  options.store_bytes = 32 << 20;
  Node node(options);
  std::mt19937_64 random(seed);
  std::vector<KeyHistory> histories(kKeys);
  std::atomic<uint64_t> next_value{1};
  uint64_t unanswered = 0;
  for (int round = 0; round < kills; ++round) {
    const std::string prefix = "register-" + std::to_string(round) + "-";
    histories = std::vector<KeyHistory>(kKeys);
    for (int half = 0; half < 2; ++half) {  // The same keys before and after a kill.
      std::atomic<bool> over{false};
      std::vector<std::thread> clients;
      for (int client = 0; client < kClients; ++client) {
        clients.emplace_back([&, seed = random()] {
          std::mt19937_64 own(seed);
          while (!over) {
            const size_t key = own() % kKeys;
            Operation operation;
            operation.kind = own() % 8 == 0   ? Kind::kPutIfAbsent
                             : own() % 2 == 0 ? Kind::kPut
                                              : Kind::kGet;
            const std::string name = prefix + std::to_string(key);
            if (operation.kind != Kind::kGet) operation.value = next_value++;
            operation.called = NowNs();
            bool answered = true;
            if (operation.kind == Kind::kPut) {
              answered = KeyPut(name, std::to_string(operation.value)) == sheaf::ErrorKind::kNone;
            } else if (operation.kind == Kind::kPutIfAbsent) {
              const auto added = KeyPutIfAbsent(name, std::to_string(operation.value));
              answered = added.has_value();
              operation.added = added.value_or(false);
            } else {
              try {
                operation.value = std::stoull(KeyGet(name).value_or("0"));
              } catch (const sheaf::Error&) {
                answered = false;
              }
            }
            if (answered) operation.answered = NowNs();
            histories[key].Add(operation);
            if (!answered) return;
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20'000 + random() % 40'000));
      if (half == 0) node.Kill();
      over = true;
      for (std::thread& client : clients) client.join();
      if (half == 0) node.Resume();
    }
    for (int key = 0; key < kKeys; ++key) {
      const std::vector<Operation> history = histories[static_cast<size_t>(key)].operations();
      INFO("round " << round << ", key " << key << ", " << history.size() << " operations");
      CHECK(IsLinearizable(history));
      for (const Operation& operation : history)
        unanswered += operation.answered == Operation::kNever ? 1 : 0;
    }
  }
  std::ostringstream words;
  words << "over " << kills << " kills " << next_value - 1 << " writes by " << kClients
        << " clients, " << unanswered
        << " operations without an answer: every key's history is linearizable";
  Figures("11", words.str());
}

}  // namespace faults
