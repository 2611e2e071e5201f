// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Logs over HTTP, of two nodes whose answers the test makes up.
#include "dashboard/logs/log_routes.h"

#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/testing/wait_until_for_test.h"
#include "dashboard/logs/logs_for_test.h"
#include "http/json.h"

namespace sheaf::dashboard {
namespace log_routes_test {

using Fixture = LogFixture;

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

}  // namespace log_routes_test
}  // namespace sheaf::dashboard
