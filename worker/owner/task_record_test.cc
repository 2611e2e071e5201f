// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the record of a call is made of: the bytes of its arguments, its target.
#include "worker/owner/task_record.h"

#include <catch2/catch.hpp>
#include <string>

#include "worker/owner/created_actors.h"
#include "worker/owner/task_submitter.h"

namespace sheaf {
namespace task_record_test {

std::string Contents(const InlineBytes& bytes) { return std::string(std::string_view(bytes)); }

TEST_CASE("bytes grow out of their own memory without losing any") {
  InlineBytes bytes;
  std::string expected;
  for (int i = 0; i < 40; ++i) {
    const std::string piece(static_cast<size_t>(i), static_cast<char>('a' + i % 26));
    bytes.append(piece);
    expected += piece;
    REQUIRE(Contents(bytes) == expected);
  }
}

TEST_CASE("moving takes the bytes, short or long, and leaves none") {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{InlineBytes::kInline},
                            size_t{InlineBytes::kInline} + 1, size_t{5000}}) {
    const std::string expected(size, 'x');
    InlineBytes from{expected};
    InlineBytes to(std::move(from));
    CHECK(Contents(to) == expected);
    CHECK(from.size() == 0);
    InlineBytes assigned{std::string(100, 'y')};
    assigned = std::move(to);
    CHECK(Contents(assigned) == expected);
    CHECK(to.size() == 0);
    to.append("again");
    CHECK(Contents(to) == "again");
  }
}

SCENARIO("a target is what it was made of, and nothing else") {
  OwnedLease lease;
  ActorClient actor;
  CreatedActor created;
  const TaskTarget nobody, of_lease(&lease), of_actor(&actor), of_created(&created);
  CHECK(of_lease.lease() == &lease);
  CHECK(of_actor.actor() == &actor);
  CHECK(of_created.created() == &created);
  for (const TaskTarget& other : {nobody, of_actor, of_created}) CHECK(other.lease() == nullptr);
  for (const TaskTarget& other : {nobody, of_lease, of_created}) CHECK(other.actor() == nullptr);
  for (const TaskTarget& other : {nobody, of_lease, of_actor}) CHECK(other.created() == nullptr);
}

}  // namespace task_record_test
}  // namespace sheaf
