// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Logs that are followed, and what that may cost.
#include "dashboard/logs/log_follower.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/testing/wait_until_for_test.h"
#include "dashboard/logs/logs_for_test.h"

namespace sheaf::dashboard {
namespace log_follower_test {

using Fixture = LogFixture;

// A viewer that takes all, and remembers it.
class Watched final : public http::Stream {
 public:
  bool Write(std::string bytes) override {
    const MutexLock lock(mutex_);
    text_ += bytes;
    return true;
  }
  void Close(uint16_t code, std::string) override { code_ = code; }
  bool open() const override { return code_ == 0; }
  void OnChange(std::function<void()>) override {}

  std::string Text() const {
    const MutexLock lock(mutex_);
    return text_;
  }
  uint16_t Code() const { return code_; }

 private:
  mutable Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint16_t> code_ = 0;
};

TEST_CASE("a log that is followed goes on, says when it begins anew, and ends with its writer") {
  Fixture fixture;
  fixture.nodes.Log(2, "worker-2.7.out", "old\nbefore\n");
  Client client = fixture.Follow("/api/v0/logs/stream?actor_id=there&lines=1");
  const std::string begin = client.Read("before\n\r\n");
  CHECK(StatusOf(begin) == 200);
  CHECK(begin.find("old") == std::string::npos);
  fixture.nodes.Log(2, "worker-2.7.out", "after\n");
  CHECK_FALSE(client.Read("after\n\r\n").empty());
  fixture.nodes.Empty(2, "worker-2.7.out");
  CHECK_FALSE(client.Read("[sheaf: this log was begun anew]\n").empty());
  fixture.nodes.Log(2, "worker-2.7.out", "new\n");
  CHECK_FALSE(client.Read("new\n").empty());
  fixture.nodes.Is(2, ErrorKind::kPendingCallsLimit);  // Busy; that passes.
  fixture.nodes.Log(2, "worker-2.7.out", "last\n");
  fixture.nodes.End("worker-2.7.out");
  fixture.nodes.Is(2, ErrorKind::kNone);
  const std::string end = client.Read();
  CHECK(end.find("last\n") != std::string::npos);
  CHECK(end.find("[sheaf: who wrote this log has ended]\n") != std::string::npos);
  CHECK(end.ends_with("0\r\n\r\n"));
}

TEST_CASE("who follows a log of a node that dies is told, and that something is missing") {
  Fixture fixture;
  fixture.nodes.Log(2, "node.log", "alive\n");
  Client client = fixture.Follow("/api/v0/logs/stream?filename=node.log&node_ip=10.0.0.2");
  client.Read("alive\n");
  fixture.nodes.Is(2, ErrorKind::kNodeDied);
  const std::string end = client.Read();
  CHECK(end.find("[sheaf: trouble with node 2]\n") != std::string::npos);
  CHECK_FALSE(end.ends_with("0\r\n\r\n"));
}

TEST_CASE("one follower's node that does not answer holds up no other") {
  Fixture fixture;
  fixture.nodes.Log(1, "node.log", "one\n");
  fixture.nodes.Log(2, "node.log", "two\n");
  Client stuck = fixture.Follow("/api/v0/logs/stream?filename=node.log&node_ip=10.0.0.2");
  stuck.Read("two\n");
  fixture.nodes.Is(2, ErrorKind::kTimeout);
  Client other = fixture.Follow("/api/v0/logs/stream?filename=node.log");
  other.Read("one\n");
  fixture.nodes.Log(1, "node.log", "more\n");
  CHECK_FALSE(other.Read("more\n").empty());
  fixture.nodes.Is(2, ErrorKind::kNone);
  fixture.nodes.Log(2, "node.log", "again\n");
  CHECK_FALSE(stuck.Read("again\n").empty());
}

TEST_CASE("however many logs are followed, there is room for others who watch") {
  Fixture fixture;
  fixture.nodes.Log(1, "node.log", "one\n");
  fixture.nodes.Submission(proto::Submission::RUNNING, 1);
  const std::string path = "/api/v0/logs/stream?filename=node.log";
  std::vector<Client> viewers;
  for (int i = 0; i < 48; ++i) {
    viewers.push_back(fixture.Follow(path));
    CHECK(StatusOf(viewers.back().Read("one\n")) == 200);
  }
  for (const std::string& other : {path, std::string("/api/sheaf/jobs/job/logs")}) {
    const std::string refusal = fixture.Ask(other);
    CHECK(StatusOf(refusal) == 429);
    CHECK(refusal.find("48 logs are read or followed") != std::string::npos);
  }
  // A log that is there is read without one.
  CHECK(fixture.Read("filename=node.log") == "one\n");
  viewers.pop_back();
  CHECK(
      WaitUntil(20 * kSecond, [&] { return StatusOf(fixture.Follow(path).Read("\r\n")) == 200; }));
}

TEST_CASE("a follower for which there is no memory ends, and the others go on") {
  Fixture fixture;
  std::atomic<bool> out_of_memory = false;
  const AskNode ask = [&](const proto::StateQuery& query,
                          Nanos) -> absl::StatusOr<proto::StateAnswer> {
    if (out_of_memory && query.log().node() == 2) throw std::bad_alloc();
    return fixture.nodes.Answer(query);
  };
  LogFollower follower(ask);
  fixture.nodes.Log(1, "node.log", "one\n");
  fixture.nodes.Log(2, "node.log", "two\n");
  const auto here = std::make_shared<Watched>(), there = std::make_shared<Watched>();
  const auto add = [&](const std::shared_ptr<Watched>& stream, NodeNumber node) {
    follower.Add(stream, {.log = NodeLog(ask, {node, "node.log"})});
  };
  add(here, 1);
  add(there, 2);
  CHECK(
      WaitUntil(20 * kSecond, [&] { return here->Text() == "one\n" && there->Text() == "two\n"; }));
  out_of_memory = true;
  fixture.nodes.Log(1, "node.log", "more\n");
  CHECK(WaitUntil(20 * kSecond, [&] { return there->Code() == 1011; }));
  CHECK(WaitUntil(20 * kSecond, [&] { return here->Text() == "one\nmore\n"; }));
  CHECK(here->Code() == 0);
}

TEST_CASE("what is held of a log is bounded in the form that is sent, whatever is in it") {
  Fixture fixture;
  fixture.nodes.Log(1, "node.log", std::string(3 * kLogPieceBytes, '\0'));
  for (const LogText::Form form : {LogText::Form::kAsItIs, LogText::Form::kInJson}) {
    LogTail tail(fixture.ask, {.log = NodeLog(fixture.ask, {1, "node.log"}),
                               .text = LogText(form),
                               .until = 3 * kLogPieceBytes});
    uint64_t bytes = 0;
    LogTail::Step step;
    while (step.end == LogTail::End::kNone) {
      step = tail.Next();
      CHECK(step.text.size() <= kLogPieceBytes);
      bytes += step.text.size();
    }
    CHECK(bytes == (form == LogText::Form::kInJson ? 6 : 1) * 3 * uint64_t{kLogPieceBytes});
  }
}

}  // namespace log_follower_test
}  // namespace sheaf::dashboard
