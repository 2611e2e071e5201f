// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/sampling/call_sampler.h"

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "telemetry/event_page_for_test.h"
#include "telemetry/event_words.h"
#include "telemetry/profile_page.h"

namespace app {

thread_local volatile uint64_t sink = 0;

[[gnu::noinline]] void Turn(sheaf::Nanos cpu) {
  const sheaf::Nanos end = sheaf::ThreadCpuTime(pthread_self()) + cpu;
  while (sheaf::ThreadCpuTime(pthread_self()) < end) {
    for (int i = 0; i < 2000; ++i) sink = sink + 1;
  }
}
[[gnu::noinline]] void Spin(sheaf::Nanos cpu) {
  Turn(cpu);
  sink = sink + 1;  // So that the call above is no jump.
}
[[gnu::noinline]] uint64_t Deep(int depth) {
  if (depth == 0) {
    Spin(20 * sheaf::kMillisecond);
    return sink;
  }
  return Deep(depth - 1) + sink;
}
[[gnu::noinline]] void Throws(int depth) {
  if (depth == 0) throw std::runtime_error("as users do");
  Throws(depth - 1);
  sink = sink + 1;
}

}  // namespace app

namespace sheaf::inline v1::internal {
namespace {

struct Profiled {
  std::shared_ptr<Mapping> segment = telemetry::SegmentForTest();
  const telemetry::ProfilePage& page = telemetry::ProfilePageOf(segment->data());
  std::unique_ptr<CallSampler> sampler = CallSampler::Start({segment, segment->data()}, /*hz=*/250);

  // "f g" -> the microseconds in g below f. Ends the sampler.
  std::map<std::string, uint64_t> Times() {
    sampler.reset();
    std::vector<std::string> paths{""};
    std::map<std::string, uint64_t> times;
    for (uint64_t i = 1; i <= page.header.nodes; ++i) {
      const uint64_t place = page.nodes[i].place;
      REQUIRE((place >> 32) < i);
      const auto& frame = page.frames[place & UINT32_MAX];
      const std::string& above = paths[place >> 32];
      paths.push_back(above + (above.empty() ? "" : " ") + telemetry::LoadText(frame.function));
      times[paths.back()] += page.nodes[i].self_us;
    }
    return times;
  }
};

struct Named : FunctionRecord {
  explicit Named(const std::string& as) { name = as; }
};

// The sampled time of stacks that begin so.
uint64_t Below(const std::map<std::string, uint64_t>& times, const std::string& path) {
  uint64_t sum = 0;
  for (const auto& [stack, time] : times) {
    if (stack.starts_with(path)) sum += time;
  }
  return sum;
}

constexpr uint64_t kSpin = 200'000;  // us

TEST_CASE("the time of a call is that of the functions in which it worked") {
  const Named spin("app::Spin"), other("app::Other");
  Profiled profiled;
  REQUIRE(profiled.sampler != nullptr);
  app::Spin(kSpin * kMicrosecond);  // Of no call.
  {
    const SampledCall call(&spin);
    app::Spin(kSpin * kMicrosecond);
    {
      const SampledCall nested(&other);
      app::Spin(kSpin * kMicrosecond);
    }
  }
  const auto times = profiled.Times();
  CHECK(Below(times, "") > kSpin);
  CHECK(Below(times, "") < 3 * kSpin);
  CHECK(Below(times, "app::Spin") > kSpin / 2);
  CHECK(Below(times, "app::Other") > kSpin / 2);
  // What was called is there once, though its own name is on its stack as well.
  CHECK(Below(times, "app::Spin app::Spin") == 0);
#ifndef __SANITIZE_THREAD__  // Which puts signals off until the stack is another one.
  CHECK(Below(times, "app::Spin app::Turn") > kSpin / 2);
  CHECK(Below(times, "app::Other app::Spin app::Turn") > kSpin / 2);
#endif
}

TEST_CASE("a call that waits takes no time") {
  const Named waits("app::Waits");
  Profiled profiled;
  {
    const SampledCall call(&waits);
    const Nanos until = MonotonicNow() + 100 * kMillisecond;
    timespec rest{0, 100 * kMillisecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR) {
    }
    CHECK(MonotonicNow() >= until);
  }
  CHECK(Below(profiled.Times(), "") < 50'000);
}

TEST_CASE("threads that come and go are sampled, whatever they are in") {
  const Named deep("app::Deep"), throws("app::Throws");
  Profiled profiled;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        const SampledCall call(&deep);
        app::Deep(500);
        const SampledCall other(&throws);
        const Nanos end = ThreadCpuTime(pthread_self()) + 20 * kMillisecond;
        while (ThreadCpuTime(pthread_self()) < end) {
          try {
            app::Throws(20);
          } catch (const std::runtime_error&) {
          }
          std::vector<std::string> texts(10, std::string(100, 'x'));
          app::sink = app::sink + texts.size();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto times = profiled.Times();
  CHECK(Below(times, "app::Deep") > 8 * 20'000);
  CHECK(Below(times, "app::Throws") > 8 * 20'000);
}

TEST_CASE("a program that handles the signal itself keeps its handler") {
  struct sigaction theirs{}, before{}, after{};
  theirs.sa_handler = [](int) {};
  REQUIRE(sigaction(SampleSignal(), &theirs, &before) == 0);
  Profiled profiled;
  CHECK(profiled.sampler == nullptr);
  REQUIRE(sigaction(SampleSignal(), &before, &after) == 0);
  CHECK(after.sa_handler == theirs.sa_handler);
}

}  // namespace
}  // namespace sheaf::inline v1::internal
