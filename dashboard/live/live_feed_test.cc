// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/live/live_feed.h"

#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "http/client_for_test.h"
#include "http/json.h"
#include "http/server.h"

namespace sheaf::dashboard {
namespace live_feed_test {

using http::Client;
using http::StatusOf;

// A node on which one call ends with each question about what is new.
class BusyNode {
 public:
  AskNode Asker() {
    return [this](const proto::StateQuery& query, Nanos) { return Answer(query); };
  }
  void Break(bool broken) {
    const MutexLock lock(mutex_);
    broken_ = broken;
  }
  // As a node whose collector does not answer in time: it tells what it knows itself.
  void BeLate(bool late) {
    const MutexLock lock(mutex_);
    late_ = late;
  }
  // Others stand beside it.
  void Beside(int nodes) {
    const MutexLock lock(mutex_);
    beside_ = nodes;
  }
  uint32_t most_lanes() {
    const MutexLock lock(mutex_);
    return most_lanes_;
  }
  int asked() {
    const MutexLock lock(mutex_);
    return asked_;
  }

 private:
  absl::StatusOr<proto::StateAnswer> Answer(const proto::StateQuery& query) {
    const MutexLock lock(mutex_);
    if (broken_) return absl::UnavailableError("the node is gone");
    proto::StateAnswer answer;
    if (query.what() == proto::StateQuery::EVENTS) {
      if (query.after() == 0) {
        answer.add_events()->set_number(5);
        answer.mutable_events(0)->set_message("node 1 joined");
      }
      return answer;
    }
    ++asked_;
    most_lanes_ = std::max(most_lanes_, query.lanes());
    if (late_) {
      answer.add_digests()->set_node(1);
      return answer;
    }
    const bool incremental = query.cursors_size() == 1 && query.cursors(0).ended() > 0;
    const bool bounded = query.cursors_size() == 1 && query.cursors(0).until_ended() > 0;
    if (!bounded) ++ended_;
    const uint64_t first = incremental ? query.cursors(0).ended() : 0;
    const uint64_t end = bounded ? query.cursors(0).until_ended() : ended_;
    proto::NodeDigest& digest = *answer.add_digests();
    digest.set_node(1);
    digest.set_finished(ended_);
    digest.add_names("f");
    digest.add_names("g");
    for (uint32_t i = 0; i < query.lanes(); ++i) {
      proto::Lane& lane = *digest.add_lanes();
      lane.set_process(uint64_t{1} << 32 | 7);
      lane.set_thread(i);
      // Each call as one bar, whose length is its number.
      for (uint64_t call = first; call < end && i == 0; ++call) {
        lane.mutable_bars()->append(4, '\0');
        lane.mutable_bars()->push_back(static_cast<char>(call));
        lane.mutable_bars()->append(3, '\0');
        lane.mutable_bars()->append({1, 0, 0, static_cast<char>(0xFF)});
      }
    }
    digest.mutable_next()->set_ended(ended_);
    for (int i = 0; i < beside_; ++i) {
      proto::NodeDigest& other = *answer.add_digests();
      other.set_node(static_cast<uint32_t>(i + 2));
      other.mutable_next()->set_at_ns(1);
    }
    return answer;
  }

  Mutex mutex_;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool late_ ABSL_GUARDED_BY(mutex_) = false;
  int beside_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t most_lanes_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct Fixture {
  BusyNode node;
  LiveFeed feed{node.Asker()};
  std::unique_ptr<http::Server> server;

  Fixture() {
    http::Router router;
    feed.AddRoutes(router);
    auto started = http::Server::Start({}, router);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
};

class Viewer {
 public:
  Viewer(const Fixture& fixture, const std::string& query) : client_(fixture.server->port()) {
    client_.Send("GET /api/sheaf/live" + query + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    head = client_.Read("\r\n\r\n");
  }
  // The next one of that name.
  boost::json::value Event(const std::string& name) {
    while (true) {
      const std::string text = client_.Read("\n\n");
      REQUIRE_FALSE(text.empty());
      const size_t at = text.find("event: " + name + "\ndata: ");
      if (at == std::string::npos) continue;
      const size_t begin = text.find("data: ", at) + 6;
      auto parsed = http::ParseJson(text.substr(begin, text.size() - 2 - begin));
      REQUIRE(parsed.ok());
      return *parsed;
    }
  }
  // The calls that a digest brings.
  static std::vector<int> Calls(const boost::json::value& digest) {
    std::string bars;
    REQUIRE(
        absl::Base64Unescape(std::string(digest.at("lanes").at(0).at("bars").as_string()), &bars));
    std::vector<int> calls;
    for (size_t at = 0; at < bars.size(); at += 12) calls.push_back(bars[at + 4]);
    return calls;
  }
  std::string head;

 private:
  Client client_;
};

TEST_CASE("who watches is told what there was, then what is new, each call once") {
  Fixture fixture;
  Viewer first(fixture, "?lanes=2");
  CHECK(StatusOf(first.head) == 200);
  CHECK(first.head.find("Content-Type: text/event-stream") != std::string::npos);
  boost::json::value digest = first.Event("digest");
  CHECK(digest.at("nodes").at(0).at("node") == 1);
  CHECK(digest.at("lanes").as_array().size() == 2);
  CHECK(digest.at("names").at(1) == "g");
  CHECK(digest.at("events").at(0).at("message") == "node 1 joined");
  std::vector<int> seen = Viewer::Calls(digest);
  digest = first.Event("digest");
  CHECK(digest.at("events").as_array().empty());
  for (const int call : Viewer::Calls(digest)) seen.push_back(call);

  Viewer second(fixture, "?lanes=1");
  digest = second.Event("digest");
  CHECK(digest.at("lanes").as_array().size() == 1);
  CHECK(digest.at("nodes").at(0).at("lanes_left_out") == 1);
  CHECK(digest.at("events").at(0).at("message") == "node 1 joined");
  std::vector<int> seen_by_second = Viewer::Calls(digest);
  for (int i = 0; i < 2; ++i) {
    for (const int call : Viewer::Calls(second.Event("digest"))) seen_by_second.push_back(call);
  }
  while (seen.size() < seen_by_second.size()) {
    for (const int call : Viewer::Calls(first.Event("digest"))) seen.push_back(call);
  }
  for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<int>(i));
  for (size_t i = 0; i < seen_by_second.size(); ++i)
    CHECK(seen_by_second[i] == static_cast<int>(i));
}

TEST_CASE("a cluster that does not answer is said so, and the feed goes on when it does") {
  Fixture fixture;
  Viewer viewer(fixture, "");
  CHECK(viewer.Event("digest").at("lanes").as_array().empty());
  fixture.node.Break(true);
  CHECK(viewer.Event("trouble").at("message") == "the node is gone");
  fixture.node.Break(false);
  viewer.Event("digest");
}

TEST_CASE("a node that tells half is late, and goes on where it was") {
  Fixture fixture;
  Viewer viewer(fixture, "?lanes=1");
  std::vector<int> seen = Viewer::Calls(viewer.Event("digest"));
  fixture.node.BeLate(true);
  boost::json::value digest = viewer.Event("digest");
  while (digest.at("late").as_array().empty()) {
    for (const int call : Viewer::Calls(digest)) seen.push_back(call);
    digest = viewer.Event("digest");
  }
  CHECK(digest.at("late").at(0) == 1);
  CHECK(digest.at("nodes").as_array().empty());
  fixture.node.BeLate(false);
  while (digest.at("nodes").as_array().empty()) digest = viewer.Event("digest");
  for (const int call : Viewer::Calls(digest)) seen.push_back(call);
  for (size_t i = 1; i < seen.size(); ++i) CHECK(seen[i] == seen[0] + static_cast<int>(i));
}

TEST_CASE("many nodes are asked for few lanes each, from the first question on") {
  Fixture fixture;
  fixture.node.Beside(99);
  Viewer viewer(fixture, "?lanes=32");
  CHECK(viewer.Event("digest").at("nodes").as_array().size() == 100);
  viewer.Event("digest");
  CHECK(fixture.node.most_lanes() == LiveFeed::kMostLanesInAll / 100);
}

TEST_CASE("nobody asks the cluster when nobody watches") {
  Fixture fixture;
  {
    Viewer viewer(fixture, "");
    viewer.Event("digest");
  }
  // The server notices that it has gone; at most a few more are asked meanwhile.
  Viewer other(fixture, "?lanes=0");
  other.Event("digest");
  const int asked = fixture.node.asked();
  for (int i = 0; i < 4; ++i) other.Event("digest");
  CHECK(fixture.node.asked() <= asked + 5);
}

TEST_CASE("a request for what is not there says what there is") {
  Fixture fixture;
  for (const char* query : {"?lanes=33", "?lanes=x", "?lane=1"}) {
    Client client(fixture.server->port());
    client.Send(absl::StrCat("GET /api/sheaf/live", query,
                             " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    CHECK(StatusOf(client.Read()) == 400);
  }
}

}  // namespace live_feed_test
}  // namespace sheaf::dashboard
