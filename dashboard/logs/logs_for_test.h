// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests of logs over HTTP: two nodes whose answers the test makes up, and a server that asks them.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/mutex.h"
#include "dashboard/job_server.h"
#include "dashboard/logs/log_routes.h"
#include "dashboard/state_rows.h"
#include "http/client_for_test.h"
#include "http/server.h"

namespace sheaf::dashboard {

using http::Client;
using http::StatusOf;

inline uint64_t Process(NodeNumber node, uint32_t number) {
  return ProcessId{node, number}.packed();
}

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

struct LogFixture {
  TwoNodes nodes;
  AskNode ask = [this](const proto::StateQuery& query,
                       Nanos) -> absl::StatusOr<proto::StateAnswer> { return nodes.Answer(query); };
  Asker asker{ask};
  LogFollower follower{ask};
  JobServer jobs{asker, ask, follower};
  std::unique_ptr<http::Server> server;

  LogFixture() {
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

}  // namespace sheaf::dashboard
