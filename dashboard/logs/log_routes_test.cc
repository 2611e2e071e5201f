// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Logs over HTTP, of two nodes whose answers the test makes up.
#include "dashboard/logs/log_routes.h"

#include <atomic>
#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/mutex.h"
#include "base/testing/wait_until_for_test.h"
#include "dashboard/job_server.h"
#include "dashboard/state_rows.h"
#include "http/client_for_test.h"
#include "http/json.h"
#include "http/server.h"

namespace sheaf::dashboard {
namespace {

using http::Client;
using http::StatusOf;

uint64_t Process(NodeNumber node, uint32_t number) { return ProcessId{node, number}.packed(); }

class TwoNodes {
 public:
  void Log(NodeNumber node, const std::string& name, const std::string& text) {
    const MutexLock lock(mutex_);
    logs_[{node, name}] += text;
  }
  void Empty(NodeNumber node, const std::string& name) {
    const MutexLock lock(mutex_);
    logs_[{node, name}].clear();
  }
  void End(const std::string& name) {
    const MutexLock lock(mutex_);
    ended_.insert(name);
  }
  void Is(NodeNumber node, ErrorKind kind) {
    const MutexLock lock(mutex_);
    trouble_.erase(node);
    if (kind != ErrorKind::kNone) trouble_[node] = kind;
  }
  void Submission(proto::Submission::State state, NodeNumber node) {
    const MutexLock lock(mutex_);
    submission_.mutable_entrypoint()->set_submission_id("job");
    submission_.set_state(state);
    submission_.set_node(node);
  }

  proto::StateAnswer Answer(const proto::StateQuery& query) {
    const MutexLock lock(mutex_);
    switch (query.what()) {
      case proto::StateQuery::LOG_LIST:
      case proto::StateQuery::LOG_READ:
        return AnswerAboutLogs(query);
      case proto::StateQuery::KEY_VALUE:
        return AnswerOfGcs();
      default:
        return Rows();
    }
  }

 private:
  static proto::StateAnswer Refused(ErrorKind kind, const std::string& words) {
    proto::StateAnswer answer;
    answer.set_error(words);
    answer.set_error_kind(static_cast<uint32_t>(kind));
    return answer;
  }
  static proto::StateAnswer Rows() {
    proto::StateAnswer answer;
    for (const NodeNumber node : {1, 2}) {
      proto::NodeRow& row = *answer.add_nodes();
      row.set_node(node);
      row.set_state("ALIVE");
      row.set_address(absl::StrCat("10.0.0.", node, ":6379"));
      for (const uint32_t number : {7, 8}) {
        proto::WorkerRow& worker = *answer.add_workers();
        worker.set_process(Process(node, number));
        // One pid is that of a process of both nodes.
        worker.set_os_pid(number == 8 ? 88 : static_cast<int32_t>(700 + node));
      }
    }
    proto::ActorRow& actor = *answer.add_actors();
    actor.set_actor_id("there");
    actor.set_process(Process(2, 7));
    answer.add_actors()->set_actor_id("pending");
    for (const uint32_t attempt : {1, 2}) {
      proto::TaskRow& task = *answer.add_tasks();
      task.set_task_id("tried");
      task.set_attempt(attempt);
      task.set_worker(Process(attempt, 7));
    }
    return answer;
  }
  proto::StateAnswer AnswerOfGcs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::GcsReply reply;
    *reply.mutable_submission() = submission_;
    if (!submission_.has_entrypoint()) reply.set_error(static_cast<uint32_t>(ErrorKind::kNotFound));
    proto::StateAnswer answer;
    answer.set_key_value(reply.SerializeAsString());
    return answer;
  }
  proto::StateAnswer AnswerAboutLogs(const proto::StateQuery& query) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const proto::LogQuestion& asked = query.log();
    const NodeNumber node = asked.node() == 0 ? 1 : asked.node();
    if (const auto found = trouble_.find(node); found != trouble_.end())
      return Refused(found->second, absl::StrCat("trouble with node ", node));
    proto::StateAnswer answer;
    if (query.what() == proto::StateQuery::LOG_LIST) {
      for (const auto& [key, text] : logs_) {
        if (key.first != node || (!asked.name().empty() && asked.name() != key.second)) continue;
        proto::LogFile& file = *answer.add_log_files();
        file.set_name(key.second);
        file.set_group("raylet");
        file.set_size_bytes(text.size());
      }
      return answer;
    }
    if (asked.name().find('/') != std::string::npos)
      return Refused(ErrorKind::kInvalidArgument, "no name of a log");
    const auto log = logs_.find({node, asked.name()});
    if (log == logs_.end()) return Refused(ErrorKind::kNotFound, "there is no such log");
    const std::string& text = log->second;
    uint64_t from = asked.offset();
    proto::LogPiece& piece = *answer.mutable_log();
    if (asked.from_end()) {
      from = text.size();
      for (uint64_t lines = asked.lines(); lines > 0 && from > 0; --lines) {
        const size_t end = from < 2 ? std::string::npos : text.rfind('\n', from - 2);
        from = end == std::string::npos ? 0 : end + 1;
      }
    } else if (from > text.size()) {
      piece.set_anew(true);
      from = 0;
    }
    piece.set_bytes(text.substr(from, asked.most_bytes()));
    piece.set_offset(from);
    piece.set_next(from + piece.bytes().size());
    piece.set_left(text.size() - piece.next());
    piece.set_ended(ended_.contains(asked.name()));
    return answer;
  }

  Mutex mutex_;
  std::map<std::pair<NodeNumber, std::string>, std::string> logs_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeNumber, ErrorKind> trouble_ ABSL_GUARDED_BY(mutex_);
  proto::Submission submission_ ABSL_GUARDED_BY(mutex_);
};

struct Fixture {
  TwoNodes nodes;
  AskNode ask = [this](const proto::StateQuery& query,
                       Nanos) -> absl::StatusOr<proto::StateAnswer> { return nodes.Answer(query); };
  Asker asker{ask};
  LogFollower follower{ask};
  JobServer jobs{asker, ask, follower};
  std::unique_ptr<http::Server> server;

  Fixture() {
    http::Router router;
    AddLogRoutes(router, asker, follower, 1);
    jobs.AddRoutes(router);
    auto started = http::Server::Start({}, std::move(router));
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  std::string Ask(const std::string& path) const {
    Client client(server->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return client.Read();
  }
  std::string Read(const std::string& query) const {
    const std::string answer = Ask("/api/v0/logs/file?" + query);
    INFO(answer);
    CHECK(StatusOf(answer) == 200);
    return BodyOf(answer);
  }
  // Follows, to the end of the answer or until `end` has come.
  Client Follow(const std::string& path) const {
    Client client(server->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return client;
  }
  // Without the heads of chunks.
  static std::string BodyOf(const std::string& answer) {
    const size_t head = answer.find("\r\n\r\n");
    std::string body = answer.substr(head + 4);
    if (answer.substr(0, head).find("chunked") == std::string::npos) return body;
    std::string out;
    size_t at = 0;
    while (at < body.size()) {
      const size_t size = std::stoul(body.substr(at), nullptr, 16);
      at = body.find("\r\n", at) + 2;
      if (size == 0) break;
      out += body.substr(at, size);
      at += size + 2;
    }
    return out;
  }
  std::string JobLogs(const std::string& query = "") const {
    const std::string answer = Ask("/api/jobs/job/logs" + query);
    INFO(answer.substr(0, 1000));
    CHECK(StatusOf(answer) == 200);
    const std::string body = BodyOf(answer);
    CHECK(body.starts_with("{\"logs\":\""));
    CHECK(body.ends_with("\"}"));
    return body.substr(9, body.size() - 11);
  }
};

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

std::string Lines(int from, int to) {
  std::string all;
  for (int i = from; i < to; ++i) absl::StrAppend(&all, "line ", i, "\n");
  return all;
}

TEST_CASE("logs of each node are listed and read, wherever the dashboard stands") {
  Fixture fixture;
  fixture.nodes.Log(1, "node.log", "of one\n");
  fixture.nodes.Log(2, "node.log", "of two\n");
  fixture.nodes.Log(2, "worker-2.7.out", "one\ntwo\n\x1b[31mthree\x1b[0m\n");
  fixture.nodes.Log(2, "worker-2.7.err", "wrong\n");
  fixture.nodes.Log(1, "worker-1.7.out", "first try\n");
  const std::string listed = fixture.Ask("/api/v0/logs?node_ip=10.0.0.2");
  CHECK(listed.find("\"raylet\":[\"node.log\",\"worker-2.7.err\",\"worker-2.7.out\"]") !=
        std::string::npos);
  CHECK(fixture.Read("filename=node.log") == "of one\n");
  CHECK(fixture.Read("filename=node.log&node_id=" + NodeIdText(2)) == "of two\n");
  CHECK(fixture.Read("filename=node.log&node_ip=10.0.0.2") == "of two\n");
  CHECK(fixture.Read("actor_id=there&lines=2") == "two\n\x1b[31mthree\x1b[0m\n");
  CHECK(fixture.Read("pid=702&lines=1&filter_ansi_code=True") == "three\n");
  CHECK(fixture.Read("pid=702&suffix=err&lines=-1") == "wrong\n");
  CHECK(fixture.Read("task_id=tried&attempt_number=1") == "first try\n");
  CHECK(fixture.Read("task_id=tried&attempt_number=2&lines=1") == "\x1b[31mthree\x1b[0m\n");
  CHECK(fixture.Read("filename=node.log&lines=0").empty());
}

TEST_CASE("all logs of a node are searched, and what was not searched is counted") {
  Fixture fixture;
  fixture.nodes.Log(2, "a.log", "One error\nnothing\nERROR <two>\n");
  fixture.nodes.Log(2, "b.log", Lines(0, 100'000) + "the last error has no line feed");
  fixture.nodes.Log(1, "a.log", "an error of another node\n");
  const auto search = [&](const std::string& path) {
    const auto found = http::ParseJson(Fixture::BodyOf(fixture.Ask("/api/sheaf/logs/" + path)));
    REQUIRE(found.ok());
    return *found;
  };
  const boost::json::value found = search("2?find=eRRor");
  std::vector<std::string> lines;
  for (const auto& match : found.at("matches").as_array()) {
    lines.push_back(absl::StrCat(match.at("file").as_string().c_str(), ": ",
                                 match.at("line").as_string().c_str()));
  }
  CHECK(lines == std::vector<std::string>{"a.log: One error", "a.log: ERROR <two>",
                                          "b.log: the last error has no line feed"});
  CHECK(found.at("searched_bytes").as_int64() > 1'000'000);
  CHECK(found.at("left_out_bytes").as_int64() == 0);
  CHECK_FALSE(found.at("more").as_bool());
  // The last ones count.
  CHECK(search("2?find=line&glob=b.log").at("matches").as_array().size() == 500);
  CHECK(search("2?find=line&glob=b.log").at("matches").as_array().at(498).at("line").as_string() ==
        "line 99999");
  CHECK(search("2?find=line").at("more").as_bool());
  CHECK(search("2?find=x&glob=a.log").at("matches").as_array().empty());
  CHECK(StatusOf(fixture.Ask("/api/sheaf/logs/2")) == 400);
  CHECK(StatusOf(fixture.Ask("/api/sheaf/logs/two?find=x")) == 400);
  fixture.nodes.Is(2, ErrorKind::kNodeDied);
  CHECK(StatusOf(fixture.Ask("/api/sheaf/logs/2?find=x")) == 404);
}

TEST_CASE("what names no log is refused, and says why") {
  Fixture fixture;
  fixture.nodes.Log(1, "node.log", "x\n");
  fixture.nodes.Is(2, ErrorKind::kNodeDied);
  for (const auto& [query, status, words] : std::vector<std::tuple<std::string, int, std::string>>{
           {"", 400, "name a log by"},
           {"filename=../node", 400, "no name"},
           {"filename=gone.log", 404, "no such log"},
           {"filename=node.log&lines=x", 400, "lines=x"},
           {"filename=node.log&node_id=xyz", 400, "hexadecimal"},
           {"filename=node.log&node_ip=10.0.0.9", 404, "no node has this address"},
           {"filename=node.log&node_id=" + NodeIdText(2), 404, "trouble with node 2"},
           {"pid=1", 404, "no worker with pid 1"},
           {"pid=x", 400, "pid=x"},
           {"pid=88", 400, "say with node_id"},
           {"pid=701&suffix=x", 400, "want out or err"},
           {"actor_id=nobody", 404, "no actor"},
           {"actor_id=pending", 404, "has no process"},
           {"task_id=tried", 404, "of attempt 1, 2, not of 0"},
           {"task_id=tried&attempt_number=-1", 400, "attempt_number=-1"},
           {"submission_id=none", 404, ""}}) {
    INFO(query);
    const std::string answer = fixture.Ask("/api/v0/logs/file?" + query);
    CHECK(StatusOf(answer) == status);
    CHECK(answer.find(words) != std::string::npos);
  }
  fixture.nodes.Is(2, ErrorKind::kTimeout);
  CHECK(StatusOf(fixture.Ask("/api/v0/logs?node_id=" + NodeIdText(2))) == 503);
}

TEST_CASE("a log of any length is read whole, piece by piece") {
  Fixture fixture;
  const std::string all = Lines(0, 100'000);
  fixture.nodes.Log(2, "worker-2.7.out", all);
  CHECK(fixture.Read("actor_id=there&lines=-1") == all);
  CHECK(fixture.Read("actor_id=there&lines=90000") == Lines(10'000, 100'000));
}

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

TEST_CASE("logs of a job come from the node that it runs on") {
  Fixture fixture;
  fixture.nodes.Submission(proto::Submission::PENDING, 0);
  CHECK(fixture.JobLogs().empty());
  fixture.nodes.Submission(proto::Submission::RUNNING, 2);
  CHECK(fixture.JobLogs().empty());  // Nothing is printed yet.
  fixture.nodes.Log(2, "job-driver-job.log", "\"a\"\nb\n");
  CHECK(fixture.JobLogs() == "\\\"a\\\"\\nb\\n");
  CHECK(fixture.JobLogs("?offset=2&limit=1") == "\\\"");
  CHECK(fixture.JobLogs("?offset=99").empty());
  CHECK(fixture.JobLogs("?limit=2") == "[sheaf: the first 4 bytes are left out]\\nb\\n");
  CHECK(fixture.Read("submission_id=job&lines=1") == "b\n");
  const std::string many = Lines(0, 50'000);
  fixture.nodes.Log(2, "job-driver-job.log", many);
  CHECK(fixture.JobLogs().size() == 10 + many.size() + 50'000);
  fixture.nodes.Is(2, ErrorKind::kNodeDied);
  CHECK(StatusOf(fixture.Ask("/api/jobs/job/logs")) == 404);
}

TEST_CASE("a job is followed from before it starts until it has ended and all of it is sent") {
  Fixture fixture;
  fixture.nodes.Submission(proto::Submission::PENDING, 0);
  Client client = fixture.Follow("/api/sheaf/jobs/job/logs?follow=1");
  CHECK(client.Read("\r\n\r\n").find("X-Sheaf-Offset: 0\r\n") != std::string::npos);
  fixture.nodes.Submission(proto::Submission::RUNNING, 2);
  fixture.nodes.Log(2, "job-driver-job.log", "one\n");
  CHECK_FALSE(client.Read("one\n").empty());
  fixture.nodes.Log(2, "job-driver-job.log", "two\n");
  fixture.nodes.Submission(proto::Submission::SUCCEEDED, 2);
  const std::string end = client.Read();
  CHECK(end.find("two\n") != std::string::npos);
  CHECK(end.ends_with("0\r\n\r\n"));
  CHECK(end.find("[sheaf") == std::string::npos);
  const std::string again = fixture.Ask("/api/sheaf/jobs/job/logs?offset=4");
  CHECK(Fixture::BodyOf(again) == "two\n");
  CHECK(again.find("X-Sheaf-Offset: 4\r\n") != std::string::npos);
}

TEST_CASE("a job whose node dies is followed until that is recorded, and its end says so") {
  Fixture fixture;
  fixture.nodes.Submission(proto::Submission::RUNNING, 2);
  fixture.nodes.Log(2, "job-driver-job.log", "one\n");
  Client client(fixture.server->port());
  client.Send(
      "GET /api/jobs/job/logs/tail HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
      "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  CHECK_FALSE(client.Read("one\n").empty());
  fixture.nodes.Is(2, ErrorKind::kNodeDied);
  fixture.nodes.Submission(proto::Submission::FAILED, 2);
  CHECK_FALSE(client.Read("[sheaf: trouble with node 2]\n").empty());
}

}  // namespace
}  // namespace sheaf::dashboard
