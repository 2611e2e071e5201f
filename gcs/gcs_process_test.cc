// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// With a real thread, clock and database.
#include "gcs/gcs_process.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/testing/scratch_directory_for_test.h"
#include "base/version.h"
#include "gcs/gcs_world_for_test.h"

namespace sheaf {
namespace gcs_process_test {

// Posts requests and waits for their replies.
class Raylet {
 public:
  GcsProcessOptions Options(std::string database) {
    GcsProcessOptions options;
    options.database = std::move(database);
    options.send = [this](ProcessId, FrameKind kind, std::string body) {
      proto::GcsReply reply;
      if (kind != FrameKind::kGcsReply || !reply.ParseFromString(body)) return;
      const std::lock_guard lock(mutex_);
      replies_[reply.sequence()] = std::move(reply);
      changed_.notify_all();
    };
    return options;
  }
  uint64_t Post(GcsProcess& gcs, ProcessId client, proto::GcsRequest request) {
    request.set_client(client.packed());
    request.set_sequence(++sequence_);
    gcs.Post(client.node == 0 ? client : RayletOf(client.node), FrameKind::kGcsRequest,
             request.SerializeAsString());
    return sequence_;
  }
  proto::GcsReply Ask(GcsProcess& gcs, ProcessId client, proto::GcsRequest request) {
    const uint64_t sequence = Post(gcs, client, std::move(request));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return replies_.contains(sequence); });
    return replies_[sequence];
  }
  size_t replies() {
    const std::lock_guard lock(mutex_);
    return replies_.size();
  }
  NodeNumber Register(GcsProcess& gcs) {
    proto::GcsRequest request;
    request.mutable_register_node()->set_nonce(std::string(16, 'n'));
    request.mutable_register_node()->set_version(std::string(kSheafVersion));
    request.mutable_register_node()->set_address("10.0.0.7:6379");
    return Ask(gcs, {0, 1}, request).node_registered().node();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, proto::GcsReply> replies_;
  uint64_t sequence_ = 0;
};

SCENARIO(
    "a GCS process remembers across its end what is in its database, and nothing without one") {
  ScratchDirectory directory;
  const std::string database = GENERATE(true, false) ? directory / "gcs.db" : "";
  std::string cluster_id;
  NodeNumber node = 0;
  Raylet raylet;
  {
    auto gcs = GcsProcess::Start(raylet.Options(database));
    REQUIRE(gcs.status() == absl::OkStatus());
    CHECK((*gcs)->addresses().empty());
    cluster_id = (*gcs)->cluster_id();
    node = raylet.Register(**gcs);
    CHECK(node == 1);
    CHECK(raylet.Ask(**gcs, {node, 1}, KvPut("key", "value")).kv_put().added());
  }
  auto gcs = GcsProcess::Start(raylet.Options(database));
  REQUIRE(gcs.status() == absl::OkStatus());
  CHECK(((*gcs)->cluster_id() == cluster_id) == !database.empty());
  CHECK((*gcs)->addresses() == (database.empty()
                                    ? std::map<NodeNumber, std::string>()
                                    : std::map<NodeNumber, std::string>{{node, "10.0.0.7:6379"}}));
  CHECK((*gcs)->Stats().keys == (database.empty() ? 0 : 1));
  CHECK((*gcs)->Stats().term == (database.empty() ? 1 : 2));
}

SCENARIO("stopping answers what was posted") {
  ScratchDirectory directory;
  Raylet raylet;
  auto gcs = GcsProcess::Start(raylet.Options(directory / "gcs.db"));
  REQUIRE(gcs.status() == absl::OkStatus());
  const NodeNumber node = raylet.Register(**gcs);
  for (int i = 0; i < 500; ++i)
    raylet.Post(**gcs, {node, 1}, KvPut(std::to_string(i % 50), "value"));
  (*gcs)->Stop();
  CHECK(raylet.replies() == 501);
  (*gcs)->Post(RayletOf(node), FrameKind::kGcsRequest, "late");
  (*gcs)->Stop();
}

SCENARIO("the figures of the GCS are kept in the metrics page it is given") {
  ScratchDirectory directory;
  Raylet raylet;
  metrics::Page page{};
  GcsProcessOptions options = raylet.Options(directory / "gcs.db");
  options.metrics = &page;
  options.tick_period = kMillisecond;
  auto gcs = GcsProcess::Start(options);
  REQUIRE(gcs.status() == absl::OkStatus());
  const NodeNumber node = raylet.Register(**gcs);
  for (int i = 0; i < 20; ++i) raylet.Ask(**gcs, {node, 1}, KvPut("key", "value"));
  const uint64_t commits = page.counter(metrics::CounterId::kGcsCommits).load();
  CHECK(commits >= 21);
  uint64_t observed = 0;
  for (const auto& bucket : page.histogram(metrics::HistogramId::kGcsCommit).buckets)
    observed += bucket.load();
  CHECK(observed == commits);
  while (page.counter(metrics::CounterId::kGcsKeyValueOps).load() < 20) {  // Once a second.
    raylet.Ask(**gcs, {node, 1}, KvGet("key"));
  }
  CHECK(page.counter(metrics::CounterId::kGcsNodeOps).load() == 1);
}

SCENARIO("a database of another cluster, or none at all, is refused") {
  ScratchDirectory directory;
  Raylet raylet;
  REQUIRE(GcsProcess::Start(raylet.Options(directory / "gcs.db")).status() == absl::OkStatus());
  GcsProcessOptions other = raylet.Options(directory / "gcs.db");
  other.gcs.cluster_id = std::string(16, 'x');
  CHECK(GcsProcess::Start(other).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(GcsProcess::Start(raylet.Options("/no/such/directory/gcs.db")).status().code() ==
        absl::StatusCode::kUnavailable);
}

SCENARIO("a term follows the one on disk, and is not below the least that is asked for") {
  ScratchDirectory directory;
  Raylet raylet;
  const auto term = [&](uint64_t least) {
    GcsProcessOptions options = raylet.Options(directory / "gcs.db");
    options.gcs.least_term = least;
    const auto gcs = GcsProcess::Start(std::move(options));
    REQUIRE(gcs.status() == absl::OkStatus());
    return (*gcs)->term();
  };
  CHECK(term(0) == 1);
  CHECK(term(1'000) == 1'000);
  CHECK(term(5) == 1'001);
}

SCENARIO("without ticks of its own a GCS knows no time but that of the ticks it is given") {
  Raylet raylet;
  GcsProcessOptions options = raylet.Options("");
  options.tick_period = 0;
  options.longest_pause = 100 * kMillisecond;
  options.held_after_pause = 200 * kMillisecond;
  const auto gcs = GcsProcess::Start(std::move(options));
  REQUIRE(gcs.ok());
  const NodeNumber node = raylet.Register(**gcs);
  (*gcs)->PostTick();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // Whoever ticks it is stopped.
  const Nanos begin = MonotonicNow();
  (*gcs)->PostTick();
  const size_t before = raylet.replies();
  raylet.Post(**gcs, {node, 1}, KvPut("behind", "it"));
  while (raylet.replies() == before && MonotonicNow() - begin < 5 * kSecond) {
    (*gcs)->PostTick();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(raylet.replies() > before);
  CHECK(MonotonicNow() - begin >= 200 * kMillisecond);
}

SCENARIO(
    "after a pause of the process answers are held, until it may be sure that it still leads") {
  class Raylet raylet;
  GcsProcessOptions options = raylet.Options("");
  options.longest_pause = 200 * kMillisecond;
  options.held_after_pause = 500 * kMillisecond;
  std::atomic<bool> pauses = false;
  options.send = [&pauses, send = options.send](ProcessId to, FrameKind kind, std::string body) {
    send(to, kind, std::move(body));
    if (pauses.exchange(false)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  const auto gcs = GcsProcess::Start(std::move(options));
  REQUIRE(gcs.ok());
  const NodeNumber node = raylet.Register(**gcs);
  const Nanos begin = MonotonicNow();
  pauses = true;
  raylet.Ask(**gcs, {node, 1}, KvPut("before", "it"));
  WHEN("it leads") {
    raylet.Ask(**gcs, {node, 1}, KvPut("behind", "it"));
    CHECK(MonotonicNow() - begin >= 500 * kMillisecond);
  }
  WHEN("it is told that its term is over") {
    const size_t before = raylet.replies();
    raylet.Post(**gcs, {node, 1}, KvPut("behind", "it"));
    (*gcs)->Silence();
    (*gcs)->Stop();
    CHECK(raylet.replies() == before);
  }
}

}  // namespace gcs_process_test
}  // namespace sheaf
