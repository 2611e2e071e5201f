// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/table_routes.h"

#include <boost/json/value.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/message_limits.h"
#include "dashboard/tables/table_page.h"
#include "http/client_for_test.h"
#include "http/json.h"
#include "http/server.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {
namespace table_routes_test {

constexpr int64_t kEnd = 1'000'000'000'000'000'000;  // In 2001.
const std::string kTask = "00000001000000010000000000050000";

// Five objects of two owners, and as many calls as are asked for; remembers the last question.
struct Fixture {
  proto::StateQuery asked;
  proto::GcsReply gcs_reply;
  bool truncated = false;
  uint32_t live = 0;  // Calls that have not ended; they come first.
  Asker asker;
  std::unique_ptr<http::Server> server;

  Fixture() : asker([this](const proto::StateQuery& query, Nanos) { return Answer(query); }) {
    http::Router router;
    AddTableRoutes(router, asker);
    auto started = http::Server::Start({.token = "s3cret"}, std::move(router));
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  absl::StatusOr<proto::StateAnswer> Answer(const proto::StateQuery& query) {
    asked = query;
    proto::StateAnswer answer;
    if (query.counts_only()) {
      proto::CountRow& row = *answer.add_counts();
      row.set_key("store");
      row.set_count(1'000'000);
      row.set_bytes(7);
    } else if (query.what() == proto::StateQuery::OBJECTS) {
      for (uint64_t i = 1; i <= 5; ++i) {
        proto::ObjectRow& row = *answer.add_objects();
        row.set_object_id(absl::StrCat("object-", i));
        row.set_size_bytes(i * 1000);
        row.set_where(i < 4 ? "store" : "spilled");
        row.set_owner(uint64_t{1} << 32 | (i % 2));
      }
      answer.add_late_nodes(3);
      answer.set_truncated(truncated);
    }
    if (query.what() == proto::StateQuery::TASKS) {
      for (uint32_t i = 0; i < query.limit(); ++i) {
        proto::TaskRow& row = *answer.add_tasks();
        row.set_task_id(absl::StrCat("task-", i));
        row.set_name("<b>f</b>");
        row.set_state(i < live ? "RUNNING" : "FINISHED");
        if (i >= live) row.set_end_unix_ns(kEnd + i);
      }
      answer.set_truncated(true);
      answer.set_events_lost(7);
    }
    if (query.what() == proto::StateQuery::FUNCTIONS) {
      for (int i = 0; i < 2; ++i) {
        proto::FunctionRow& row = *answer.add_functions();
        row.set_waiting_for_place(i * 5);
        row.set_pushed(3);
        row.set_running(2);
        row.set_finished(1'000'000);
      }
    }
    if (query.what() == proto::StateQuery::WHY) answer.set_words("f waits for: a node with 2 tape");
    if (query.what() == proto::StateQuery::ACTORS) answer.add_actors()->set_actor_id(kTask);
    if (query.what() == proto::StateQuery::KEY_VALUE)
      answer.set_key_value(gcs_reply.SerializeAsString());
    if (query.what() == proto::StateQuery::DRAIN && query.id() != "2")
      answer.set_error("there is no such node");
    return answer;
  }
  std::string Ask(const std::string& line, const std::string& headers = "") const {
    http::Client client(server->port());
    client.Send(line +
                " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
                "Bearer s3cret\r\n" +
                headers + "\r\n");
    return client.Read();
  }
  boost::json::value Json(const std::string& path) const {
    const std::string answer = Ask("GET " + path);
    INFO(answer);
    REQUIRE(http::StatusOf(answer) == 200);
    auto value = http::ParseJson(answer.substr(answer.find("\r\n\r\n") + 4));
    REQUIRE(value.ok());
    return *std::move(value);
  }
  std::vector<std::string> Ids(const std::string& path) const {
    const boost::json::value page = Json(path);
    std::vector<std::string> ids;
    for (const auto& row : page.at("rows").as_array())
      ids.emplace_back(row.at("object_id").as_string().c_str());
    return ids;
  }
};

using Ids = std::vector<std::string>;

TEST_CASE("rows are filtered, ordered and cut into pages by the server") {
  const Fixture fixture;
  const std::string objects = "/api/sheaf/objects?";
  CHECK(fixture.Ids(objects + "order=-size_bytes&limit=2") == Ids{"object-5", "object-4"});
  const boost::json::value page = fixture.Json(objects + "order=-size_bytes&limit=2");
  CHECK(page.at("total").as_int64() == 5);
  CHECK(page.at("late_nodes").as_array().at(0).as_int64() == 3);
  const std::string next = page.at("next").as_string().c_str();
  CHECK(fixture.Ids(objects + "order=-size_bytes&limit=2&after=" + next) ==
        Ids{"object-3", "object-2"});
  CHECK(fixture.Json(objects + "limit=5").at("next").is_null());
  CHECK(fixture.Ids(objects + "after=99").empty());
  // As people see a value, and as programs do; in any case.
  CHECK(fixture.Ids(objects + "filter=where%3DSpilled&order=object_id") ==
        Ids{"object-4", "object-5"});
  CHECK(fixture.Ids(objects + "filter=size_bytes%3D3000") == Ids{"object-3"});
  CHECK(fixture.Ids(objects + "filter=where!%3Dspilled&filter=object_id~T-1") == Ids{"object-1"});
}

TEST_CASE("a text is found as it is, also where people are shown something else") {
  const std::string odd = "a\n\xE2\x80\xAE\"b\"";
  const auto found = [&](const std::string& value, RowFilter::Test test) {
    Listing table{{{"NAME", "name"}}, {{TextCell(odd)}, {TextCell("a")}}};
    REQUIRE(Arrange({.filters = {{"name", test, value}}}, table).ok());
    return table.rows.size();
  };
  CHECK(found(odd, RowFilter::Test::kIs) == 1);
  CHECK(found(Printable(odd), RowFilter::Test::kIs) == 1);
  CHECK(found(odd, RowFilter::Test::kIsNot) == 1);
  CHECK(found("a\n", RowFilter::Test::kIs) == 0);
}

TEST_CASE("of a listing that is cut short nobody says how many rows fit") {
  Fixture fixture;
  fixture.truncated = true;
  const boost::json::value page = fixture.Json("/api/sheaf/objects?filter=where%3Dstore");
  CHECK(page.at("total").is_null());
  CHECK(page.at("truncated").as_bool());
  CHECK(page.at("rows").as_array().size() == 3);
  CHECK(fixture.asked.limit() == 0);  // Nodes choose by that key.
  // By others, of as many as an answer can hold.
  (void)fixture.Json("/api/sheaf/objects?filter=size_bytes%3D3000");
  CHECK(fixture.asked.limit() == kMaxStateRows);
  // An order is of what a listing holds: pages ask for it every few seconds.
  (void)fixture.Json("/api/sheaf/objects?order=size_bytes");
  CHECK(fixture.asked.limit() == 0);
}

TEST_CASE("values are counted, with their bytes") {
  const Fixture fixture;
  const boost::json::value page = fixture.Json("/api/sheaf/objects?group=owner&limit=1");
  const auto& groups = page.at("groups").as_array();
  REQUIRE(groups.size() == 2);
  CHECK(groups.at(0).at("value").as_string() == "1.1");
  CHECK(groups.at(0).at("rows").as_int64() == 3);
  CHECK(groups.at(0).at("size_bytes").as_int64() == 9000);
  // Where objects are is counted there: of all, not of those that were listed.
  const boost::json::value places = fixture.Json("/api/sheaf/objects?group=where");
  CHECK(places.at("groups").as_array().at(0).at("rows").as_int64() == 1'000'000);
  CHECK(places.at("rows").as_array().size() == 5);
  const boost::json::value some =
      fixture.Json("/api/sheaf/objects?group=where&filter=where%3Dspilled");
  CHECK(some.at("groups").as_array().at(0).at("rows").as_int64() == 2);
}

TEST_CASE("calls are chosen and counted by their nodes, a page of them at a time") {
  Fixture fixture;
  const boost::json::value page =
      fixture.Json("/api/sheaf/tasks?limit=3&filter=name%3Df&filter=state!%3DFAILED");
  CHECK(fixture.asked.limit() == 3);
  CHECK(fixture.asked.ended());
  REQUIRE(fixture.asked.filters_size() == 2);
  CHECK(fixture.asked.filters(1).not_equal());
  CHECK(page.at("rows").as_array().size() == 3);
  CHECK(page.at("rows").as_array().at(0).at("name").as_string() == "<b>f</b>");
  CHECK(page.at("total").is_null());
  CHECK(page.at("events_lost").as_int64() == 7);
  // The next page is of those that ended before.
  const std::string next = page.at("next").as_string().c_str();
  (void)fixture.Json("/api/sheaf/tasks?after=" + next);
  CHECK(fixture.asked.ended_before_ns() == kEnd + 2);
  CHECK(fixture.asked.filters(0).key() == "state");
  CHECK(fixture.asked.filters_size() == 5);
}

TEST_CASE("nodes choose by what they can say of a row, so that a long list has what is wanted") {
  Fixture fixture;
  (void)fixture.Json("/api/sheaf/workers?filter=node%3D2&filter=running%3Df");
  REQUIRE(fixture.asked.filters_size() == 1);
  CHECK(fixture.asked.filters(0).key() == "node");
  CHECK(fixture.asked.filters(0).value() == "2");
  CHECK(fixture.asked.node() == 2);
  // What others know better, what is not the same word there, and what is only a part.
  (void)fixture.Json(
      "/api/sheaf/actors?filter=actor_id%3Dab&filter=state%3DALIVE&filter=name!%3Dx");
  REQUIRE(fixture.asked.filters_size() == 1);
  CHECK(fixture.asked.filters(0).key() == "actor_id");
  (void)fixture.Json("/api/sheaf/objects?filter=where~st&filter=size_bytes%3D7&filter=owner%3D");
  CHECK(fixture.asked.filters().empty());
}

TEST_CASE("calls that have not ended are paged, too, and then come those that have") {
  Fixture fixture;
  fixture.live = 5;
  const auto ids = [](const boost::json::value& page) {
    std::vector<std::string> found;
    for (const auto& row : page.at("rows").as_array())
      found.emplace_back(row.at("task_id").as_string().c_str());
    return found;
  };
  const boost::json::value first = fixture.Json("/api/sheaf/tasks?limit=3");
  CHECK(ids(first) == Ids{"task-0", "task-1", "task-2"});
  CHECK(first.at("next").as_string() == "3");
  const boost::json::value second = fixture.Json("/api/sheaf/tasks?limit=3&after=3");
  CHECK(ids(second) == Ids{"task-3", "task-4", "task-5"});
  CHECK(fixture.asked.ended_before_ns() == 0);
  CHECK(second.at("next").as_string() == absl::StrCat(kEnd + 5));
  fixture.live = 1'000'000;
  CHECK(fixture.Json("/api/sheaf/tasks?limit=50&ended=false&after=9950").at("next").is_null());
}

TEST_CASE("calls are counted by state, of all functions") {
  const Fixture fixture;
  const boost::json::value page = fixture.Json("/api/sheaf/functions?limit=1&group=state");
  CHECK(page.at("rows").as_array().size() == 1);
  const auto count = [&](const char* state) -> int64_t {
    for (const auto& group : page.at("groups").as_array())
      if (group.at("value").as_string() == state) return group.at("rows").as_int64();
    return -1;
  };
  CHECK(count("FINISHED") == 2'000'000);
  CHECK(count("WAITING_FOR_LEASE") == 5);
  CHECK(count("PUSHED") == 2);
  CHECK(count("RUNNING") == 4);
  CHECK(count("FAILED") == 0);
}

TEST_CASE("what is wrong with a question is said, with what would be right") {
  const Fixture fixture;
  const auto refusal = [&](const std::string& path, const char* words) {
    const std::string answer = fixture.Ask("GET /api/sheaf/" + path);
    INFO(path << ": " << answer);
    CHECK(http::StatusOf(answer) == 400);
    CHECK(absl::StrContains(answer, words));
  };
  refusal("objects?limit=0", "want a number from 1 to 1000");
  refusal("objects?limit=1001", "want a number from 1 to 1000");
  refusal("objects?after=-1", "want `next`");
  refusal("objects?filter=where", "want KEY=VALUE");
  refusal("objects?filter=cats%3D1", "there are object_id, size_bytes");
  refusal("objects?order=cats", "there are object_id");
  refusal("objects?group=cats", "there are object_id");
  refusal("objects?cats=1", "there are filter, order");
  refusal("tasks?ended=maybe", "want true, false or only");
  refusal("tasks?order=name", "live ones first");
  refusal("tasks?filter=worker%3D1.1", "task_id, name, state");
  refusal("tasks?filter=name~f", "task_id, name, state");
  refusal("tasks?filter=job%3Dabc", "job=abc: want a number");
  refusal("tasks?filter=state%3DBUSY", "one of WAITING_FOR_ARGUMENTS");
  refusal("tasks?filter=type%3Dx", "ACTOR_TASK");
  refusal("actors?filter=restarts%3Dabc", "restarts=abc: want a number");
  refusal("why/xyz", "32 hexadecimal digits");
}

TEST_CASE("why something waits is told in words, and a node drained") {
  Fixture fixture;
  CHECK(fixture.Json("/api/sheaf/why/" + kTask).at("why").as_string() ==
        "f waits for: a node with 2 tape");
  CHECK(http::StatusOf(fixture.Ask("POST /api/sheaf/nodes/2/drain")) == 200);
  CHECK(fixture.asked.what() == proto::StateQuery::DRAIN);
  CHECK(http::StatusOf(fixture.Ask("POST /api/sheaf/nodes/9/drain")) == 404);
  CHECK(http::StatusOf(fixture.Ask("POST /api/sheaf/nodes/two/drain")) == 400);
  CHECK(http::StatusOf(fixture.Ask("GET /api/sheaf/nodes/2/drain")) == 405);
}

TEST_CASE("an actor is killed by its id, once the cluster knows of it") {
  Fixture fixture;
  const std::string kill = "POST /api/sheaf/actors/" + kTask + "/kill";
  fixture.gcs_reply.set_client(1);
  CHECK(http::StatusOf(fixture.Ask(kill)) == 200);
  REQUIRE(fixture.asked.what() == proto::StateQuery::KEY_VALUE);
  proto::GcsRequest request;
  REQUIRE(request.ParseFromString(fixture.asked.key_value()));
  CHECK(request.end_actor().actor_id() == ActorId::FromHex(kTask)->Binary());
  CHECK_FALSE(request.end_actor().restart());
  CHECK(http::StatusOf(fixture.Ask("GET /api/sheaf/actors/" + kTask + "/kill")) == 405);
  CHECK(http::StatusOf(fixture.Ask("POST /api/sheaf/actors/cats/kill")) == 400);
  const std::string other = "POST /api/sheaf/actors/" + std::string(32, '7') + "/kill";
  CHECK(http::StatusOf(fixture.Ask(other)) == 404);
  CHECK(fixture.asked.what() == proto::StateQuery::ACTORS);  // Nothing was ended.
  fixture.gcs_reply.set_error(1);
  fixture.gcs_reply.set_message("the disk of the head is full");
  const std::string refused = fixture.Ask(kill);
  CHECK(http::StatusOf(refused) == 503);
  CHECK(absl::StrContains(refused, "the disk of the head is full"));
}

}  // namespace table_routes_test
}  // namespace sheaf::dashboard
