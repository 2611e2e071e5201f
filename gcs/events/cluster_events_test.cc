// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/events/cluster_events.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fake_clock.h"

namespace sheaf {
namespace cluster_events_test {

using E = proto::EventRow;

struct Fixture {
  FakeClock clock;
  uint64_t term = 1000;
  ClusterEvents events{clock, 5 * kSecond, term};

  void Add(const std::string& message, E::Severity severity = E::INFO, NodeNumber node = 0) {
    events.Add(E::NODE_DIED, severity, message, {.node = node});
  }
  std::vector<std::string> Messages(const proto::ListEvents& request) const {
    proto::EventList list;
    events.List(request, &list);
    std::vector<std::string> messages;
    for (const E& event : list.events()) messages.push_back(event.message());
    return messages;
  }
  proto::EventList All(uint32_t limit = 100'000) const {
    proto::ListEvents request;
    request.set_limit(limit);
    proto::EventList list;
    events.List(request, &list);
    return list;
  }
};

proto::ListEvents Asked(uint32_t limit, uint64_t after = 0, const std::string& key = "",
                        const std::string& value = "", bool not_equal = false) {
  proto::ListEvents request;
  request.set_limit(limit);
  request.set_after(after);
  if (!key.empty()) {
    proto::StateFilter& filter = *request.add_filters();
    filter.set_key(key);
    filter.set_value(value);
    filter.set_not_equal(not_equal);
  }
  return request;
}

TEST_CASE("the last events are listed, the oldest first, or those behind a cursor") {
  Fixture fixture;
  for (const char* message : {"a", "b", "c", "d"}) fixture.Add(message);
  using Texts = std::vector<std::string>;
  CHECK(fixture.Messages(Asked(2)) == Texts{"c", "d"});
  CHECK(fixture.All(2).matching() == 4);
  const uint64_t first = fixture.All().events(0).number();
  CHECK(fixture.Messages(Asked(2, first)) == Texts{"b", "c"});
  CHECK(fixture.Messages(Asked(2, first + 3)).empty());
}

TEST_CASE("a cursor from before a restart is below all that comes behind it") {
  Fixture before, after;
  for (int i = 0; i < 1000; ++i) before.Add("x");
  ++after.term;
  after.Add("y");
  const proto::EventList old = before.All();
  CHECK(old.events(999).number() < after.All().events(0).number());
}

TEST_CASE("filters choose, and one that names no key of events chooses nothing") {
  Fixture fixture;
  fixture.Add("a", E::ERROR, 1);
  fixture.Add("b", E::INFO, 2);
  using Texts = std::vector<std::string>;
  CHECK(fixture.Messages(Asked(9, 0, "severity", "error")) == Texts{"a"});
  CHECK(fixture.Messages(Asked(9, 0, "severity", "error", true)) == Texts{"b"});
  CHECK(fixture.Messages(Asked(9, 0, "node", "2")) == Texts{"b"});
  CHECK(fixture.Messages(Asked(9, 0, "kind", "NODE_DIED")).size() == 2);
  CHECK(fixture.Messages(Asked(9, 0, "colour", "red")).empty());
}

TEST_CASE("the oldest go, and long or broken messages are cut and mended") {
  Fixture fixture;
  for (size_t i = 0; i < ClusterEvents::kKept + 5; ++i) fixture.Add(absl::StrCat(i));
  CHECK(fixture.All().events_size() == ClusterEvents::kKept);
  CHECK(fixture.All().events(0).message() == "5");
  fixture.Add(std::string(ClusterEvents::kMaxMessage - 1, 'x') + "\xc3\xa4");
  fixture.Add(
      "a\xff"
      "b");
  CHECK(fixture.Messages(Asked(2))[0] == std::string(ClusterEvents::kMaxMessage - 1, 'x'));
  CHECK(fixture.Messages(Asked(2))[1] == "a?b");
  CHECK(fixture.All(1).events(0).unix_ms() == 6000);
}

TEST_CASE("a raylet reports what it can know, in its own name") {
  Fixture fixture;
  proto::EventRow event;
  event.set_message("no room on the disk");
  event.set_node(99);
  event.set_kind(E::SPILL_FAILED);
  fixture.events.OnReport(3, event);
  event.set_kind(E::NODE_DIED);
  fixture.events.OnReport(3, event);
  REQUIRE(fixture.All().events_size() == 1);
  CHECK(fixture.All().events(0).node() == 3);
}

}  // namespace cluster_events_test
}  // namespace sheaf
