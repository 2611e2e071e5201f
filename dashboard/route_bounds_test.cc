// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is asked of a cluster, and how much of it is told, where there is more than one can be told.
#include "dashboard/routes_for_test.h"

namespace sheaf::dashboard {
namespace route_bounds_test {

TEST_CASE("of a list that is cut short nodes choose what is wanted, where they can") {
  std::vector<proto::StateQuery> asked;
  const Fixture fixture([&](const proto::StateQuery& query, Nanos limit) {
    if (query.what() == proto::StateQuery::ACTORS) asked.push_back(query);
    return SmallCluster(query, limit);
  });
  const std::string path = "GET /api/v0/actors?filter_predicates=%3D&filter_keys=";
  CHECK(StatusOf(fixture.Ask(path + "actor_id&filter_values=a-DEAD")) == 200);
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].filters().empty());  // How many there are is told as well.
  REQUIRE(asked[1].filters_size() == 1);
  CHECK(asked[1].filters(0).key() == "actor_id");
  CHECK(asked[1].filters(0).value() == "a-DEAD");
  CHECK(StatusOf(fixture.Ask(path + "state&filter_values=DEAD")) == 200);
  CHECK(asked.size() == 3);
}

TEST_CASE("who asks for health again and again asks the cluster once a second at most") {
  std::atomic<int> asked = 0;
  const Fixture fixture([&](const proto::StateQuery& query, Nanos limit) {
    ++asked;
    return SmallCluster(query, limit);
  });
  const Nanos begin = MonotonicNow();
  for (int i = 0; i < 20; ++i) CHECK(StatusOf(fixture.Ask("GET /api/healthz")) == 200);
  CHECK(asked <= 1 + (MonotonicNow() - begin) / kSecond);
}

TEST_CASE("of more values than an answer holds neighbours become their mean") {
  const Fixture fixture([](const proto::StateQuery&, Nanos) {
    proto::StateAnswer answer;
    for (int node = 1; node <= 2; ++node) {
      proto::SeriesRow& row = *answer.add_series();
      row.set_node(node);
      row.set_period_ms(2000);
      row.add_values(std::nanf(""));
      for (int i = 1; i < 400'000; ++i) row.add_values(static_cast<float>(i % 2));
    }
    return absl::StatusOr<proto::StateAnswer>(answer);
  });
  const std::string answer = fixture.Ask("GET /api/sheaf/series?name=cpu");
  REQUIRE(StatusOf(answer) == 200);
  CHECK(answer.find("\"period_ms\":4000") != std::string::npos);
  CHECK(answer.find("[1,0.5,0.5,") != std::string::npos);  // What is not known counts for nothing.
  CHECK(std::count(answer.begin(), answer.end(), '5') >= 399'998);
  CHECK(answer.size() < 3'000'000);
}

}  // namespace route_bounds_test
}  // namespace sheaf::dashboard
