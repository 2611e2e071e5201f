// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/stack_answers.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "base/mutex.h"
#include "base/testing/wait_until_for_test.h"

namespace sheaf {
namespace stack_answers_test {

// What was sent, by the numbers of the questions.
struct Sent {
  Mutex mutex;
  std::vector<proto::StateAnswer> answers ABSL_GUARDED_BY(mutex);

  void Add(const proto::StateAnswer& answer) {
    const MutexLock lock(mutex);
    answers.push_back(answer);
  }
  size_t count() {
    const MutexLock lock(mutex);
    return answers.size();
  }
};

SCENARIO("each question about the stacks of a process is answered once, with its number") {
  Sent sent;
  StackAnswers stacks(
      [] {
        proto::ProcessStacks told;
        told.add_threads()->set_name("MainThread");
        return told;
      },
      [&](const proto::StateAnswer& answer) { sent.Add(answer); });
  for (uint64_t request = 1; request <= 20; ++request) stacks.Answer(request);
  REQUIRE(WaitUntil(20 * kSecond, [&] { return sent.count() == 20; }));
  const MutexLock lock(sent.mutex);
  for (uint64_t i = 0; i < 20; ++i) {
    CHECK(sent.answers[i].request() == i + 1);
    REQUIRE(sent.answers[i].stacks_size() == 1);
    CHECK(sent.answers[i].stacks(0).threads(0).name() == "MainThread");
  }
}

SCENARIO("a process whose language tells nothing of its stacks says so") {
  Sent sent;
  StackAnswers stacks(nullptr, [&](const proto::StateAnswer& answer) { sent.Add(answer); });
  stacks.Answer(7);
  REQUIRE(WaitUntil(20 * kSecond, [&] { return sent.count() == 1; }));
  const MutexLock lock(sent.mutex);
  CHECK(sent.answers[0].stacks(0).threads_size() == 0);
  CHECK_FALSE(sent.answers[0].stacks(0).words().empty());
}

SCENARIO("an answer that is found after the end is not sent") {
  Sent sent;
  std::atomic<bool> asked{false}, go{false}, told{false};
  StackAnswers stacks(
      [&] {
        asked = true;
        WaitUntil(20 * kSecond, [&] { return go.load(); });
        told = true;
        return proto::ProcessStacks();
      },
      [&](const proto::StateAnswer& answer) { sent.Add(answer); });
  stacks.Answer(1);
  REQUIRE(WaitUntil(20 * kSecond, [&] { return asked.load(); }));
  stacks.Close();
  go = true;
  REQUIRE(WaitUntil(20 * kSecond, [&] { return told.load(); }));
  stacks.Close();
  CHECK(sent.count() == 0);
}

}  // namespace stack_answers_test
}  // namespace sheaf
