// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/gradients.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "collective/fake_rendezvous.h"
#include "collective/implementations_for_test.h"

namespace sheaf {
namespace {

using enum Implementation;

constexpr int kWorld = 3;
const std::vector<GradientArray> kArrays = {{"head", 10}, {"body", 5000}, {"tail", 777}};

// Runs `body` as each of kWorld ranks; what it returns is "" if all is well.
template <class Body>
void AsRanks(Implementation implementation, const GradientOptions& gradients, Body body) {
  FakeMeetingPlace place;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kWorld);
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      FakeRendezvous rendezvous(place);
      CommunicatorOptions options;
      options.rank = rank;
      options.world_size = kWorld;
      options.arena_bytes = 16 << 20;
      auto group = FormFor(implementation, options, rendezvous);
      if (!group.ok()) {
        errors[static_cast<size_t>(rank)] = group.status().ToString();
        return;
      }
      auto reducer = GradientReducer::Make(**group, kArrays, gradients);
      errors[static_cast<size_t>(rank)] =
          reducer.ok() ? body(**group, **reducer) : reducer.status().ToString();
      reducer->reset();
      (*group)->Barrier().IgnoreError();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == std::vector<std::string>(kWorld));
}

float Gradient(int rank, size_t array, size_t i, int step) {
  const auto seed = static_cast<float>(rank + 1) * 0.37f + static_cast<float>(array) +
                    static_cast<float>(step) * 0.11f;
  return std::sin(seed * static_cast<float>(i % 101 + 1)) * static_cast<float>(i % 7 + 1);
}
void Write(GradientReducer& reducer, size_t array, int rank, int step) {
  for (size_t i = 0; i < reducer.count(array); ++i) {
    reducer.array(array)[i] = Gradient(rank, array, i, step);
  }
}

TEST_CASE("gradients in buckets are what one all-reduce gives, whatever the order", "[gradients]") {
  const auto implementation = GENERATE(kShm, kHierarchical);
  const size_t bucket_bytes = GENERATE(1, 1 << 20);  // A bucket for each array, or for all.
  GradientOptions options;
  options.bucket_bytes = bucket_bytes;
  AsRanks(implementation, options, [&](Communicator& group, GradientReducer& reducer) {
    if (reducer.bucket_count() != (bucket_bytes == 1 ? 3 : 1)) return std::string("buckets");
    for (int step = 0; step < 3; ++step) {
      for (size_t turn = 0; turn < 3; ++turn) {
        const size_t array = (turn + static_cast<size_t>(group.rank() + step)) % 3;
        Write(reducer, array, group.rank(), step);
        if (!reducer.MarkReady(array).ok()) return std::string("mark");
        if (reducer.MarkReady(array).ok()) return std::string("marked twice");
      }
      if (!reducer.Finish().ok()) return std::string("finish");
      for (size_t array = 0; array < 3; ++array) {
        std::vector<float> plain(reducer.count(array));
        for (size_t i = 0; i < plain.size(); ++i) {
          plain[i] = Gradient(group.rank(), array, i, step);
        }
        if (!group
                 .AllReduce(plain.data(), plain.data(), plain.size(), DataType::kFloat32,
                            ReduceOp::kAverage)
                 .ok()) {
          return std::string("plain");
        }
        if (!std::equal(plain.begin(), plain.end(), reducer.array(array))) {
          return "other values in " + std::to_string(array);
        }
      }
    }
    return std::string();
  });
}

TEST_CASE("float16 gives the same to its rounding", "[gradients]") {
  GradientOptions options;
  options.compression = Compression::kFloat16;
  AsRanks(kShm, options, [](Communicator& group, GradientReducer& reducer) {
    const size_t array = static_cast<size_t>(reducer.IndexOf("body"));
    Write(reducer, array, group.rank(), 0);
    if (!reducer.Finish().ok()) return std::string("finish");  // It marks what is not ready.
    for (size_t i = 0; i < reducer.count(array); ++i) {
      float exact = 0;
      for (int rank = 0; rank < kWorld; ++rank) exact += Gradient(rank, array, i, 0) / kWorld;
      if (std::abs(reducer.array(array)[i] - exact) > 7.0f / 1024) return std::to_string(i);
    }
    return std::string();
  });
}

TEST_CASE("top-k sends little and loses nothing: error feedback sums to the true gradient",
          "[gradients]") {
  GradientOptions options;
  options.compression = Compression::kTopK;
  options.keep = 0.05;
  options.op = ReduceOp::kSum;
  const auto implementation = GENERATE(kShm, kApart);
  AsRanks(implementation, options, [](Communicator& group, GradientReducer& reducer) {
    constexpr int kSteps = 40;
    const size_t array = 1;
    const size_t count = reducer.count(array);
    std::vector<double> got(count), given(count);
    for (int step = 0; step < kSteps; ++step) {
      Write(reducer, array, group.rank(), 0);
      size_t sent = 0;
      if (!reducer.Finish().ok()) return std::string("finish");
      for (size_t i = 0; i < count; ++i) {
        got[i] += static_cast<double>(reducer.array(array)[i]);
        sent += reducer.array(array)[i] != 0;
        reducer.array(array)[i] = 0;
      }
      if (sent > count / 5) return "too much was sent: " + std::to_string(sent);
      for (size_t other : {0, 2}) {
        std::fill_n(reducer.array(other), reducer.count(other), 0.0f);
      }
    }
    // What all have sent and what they still keep is all that they were given.
    const std::vector<float> residual = reducer.Residual(array);
    std::vector<float> left = residual;
    if (!group.AllReduce(left.data(), left.data(), count, DataType::kFloat32).ok()) {
      return std::string("residuals");
    }
    double mean = 0;
    for (size_t i = 0; i < count; ++i) {
      for (int rank = 0; rank < kWorld; ++rank) {
        given[i] += kSteps * static_cast<double>(Gradient(rank, array, i, 0));
      }
      if (std::abs(got[i] + static_cast<double>(left[i]) - given[i]) > 0.05) {
        return "value " + std::to_string(i) + ": " + std::to_string(got[i]) + " + " +
               std::to_string(left[i]) + " of " + std::to_string(given[i]);
      }
      mean += std::abs(static_cast<double>(left[i]));
    }
    // Most has been sent.
    return mean / static_cast<double>(count) < 60 ? "" : "kept " + std::to_string(mean);
  });
}

TEST_CASE("wrong arrays and options are refused", "[gradients]") {
  FakeMeetingPlace place;
  FakeRendezvous rendezvous(place);
  CommunicatorOptions alone;
  alone.arena_bytes = 1 << 20;
  auto group = FormShmCommunicator(alone, rendezvous);
  REQUIRE(group.ok());
  const auto make = [&](std::vector<GradientArray> arrays, GradientOptions options = {}) {
    return GradientReducer::Make(**group, std::move(arrays), options).status();
  };
  CHECK(absl::IsInvalidArgument(make({})));
  CHECK(absl::IsInvalidArgument(make({{"a", 0}})));
  CHECK(absl::IsInvalidArgument(make({{"a", 1}, {"a", 2}})));
  GradientOptions options;
  options.op = ReduceOp::kMax;
  CHECK(absl::IsInvalidArgument(make({{"a", 1}}, options)));
  options = {};
  options.keep = 0;
  CHECK(absl::IsInvalidArgument(make({{"a", 1}}, options)));
  CHECK(absl::IsResourceExhausted(make({{"a", 1 << 20}})));
  CHECK(make({{"a", 1}}).ok());
}

}  // namespace
}  // namespace sheaf
