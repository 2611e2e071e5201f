// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "gcs/gcs_world_for_test.h"
#include "gcs/key_value_table.h"

namespace sheaf {
namespace key_value_test {

std::string Row(std::string_view name_space, std::string_view key) {
  return KeyValueTable::RowOf(name_space, key).value();
}

proto::GcsRequest KvDelete(const std::string& key, bool prefix) {
  proto::GcsRequest request;
  request.mutable_kv_delete()->set_name_space("ns");
  request.mutable_kv_delete()->set_key(key);
  request.mutable_kv_delete()->set_prefix(prefix);
  return request;
}

SCENARIO("name spaces do not leak into one another, whatever bytes they have") {
  CHECK(Row("a", "bc") != Row("ab", "c"));
  CHECK(KeyValueTable::KeyOf(Row("a\0b", "key")) == "key");
  CHECK(KeyValueTable::NameSpaceOf(Row("name", "")) == "name");
  KeyValueTable table;
  table.Put(Row("a", "x1"), "1");
  table.Put(Row("a", "x2"), "2");
  table.Put(Row("a", "y"), "3");
  table.Put(Row("ab", "x1"), "4");
  CHECK(table.WithPrefix(Row("a", "x")) == std::vector{Row("a", "x1"), Row("a", "x2")});
  CHECK(table.WithPrefix(Row("a", "")).size() == 3);
  CHECK_FALSE(KeyValueTable::RowOf("a", std::string(KeyValueTable::kMaxKeyBytes + 1, 'k')).ok());
}

SCENARIO("the table knows how many bytes it holds") {
  KeyValueTable table;
  table.Put(Row("", "k"), "12345");
  CHECK(table.bytes() == 4 + 1 + 5);
  table.Put(Row("", "k"), "1");
  CHECK(table.bytes() == 4 + 1 + 1);
  table.Erase(Row("", "k"));
  CHECK(table.bytes() == 0);
  CHECK(table.size() == 0);
}

SCENARIO("put, get, exists, keys and delete") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  CHECK(world.Ask(client, KvPut("a/1", "one")).kv_put().added());
  CHECK(world.Ask(client, KvPut("a/2", "two")).kv_put().added());
  CHECK(world.Ask(client, KvPut("b", "three")).kv_put().added());
  WHEN("a key is put again") {
    CHECK_FALSE(world.Ask(client, KvPut("b", "four", /*overwrite=*/false)).kv_put().added());
    CHECK(world.Ask(client, KvGet("b")).kv_values().entries(0).value() == "three");
    CHECK_FALSE(world.Ask(client, KvPut("b", "four")).kv_put().added());
    CHECK(world.Ask(client, KvGet("b")).kv_values().entries(0).value() == "four");
  }
  WHEN("many are asked for at once") {
    auto get = KvGet("b");
    get.mutable_kv_get()->add_keys("missing");
    get.mutable_kv_get()->add_keys("a/1");
    const proto::KvValues values = world.Ask(client, get).kv_values();
    REQUIRE(values.entries_size() == 2);
    CHECK(values.entries(0).value() == "three");
    CHECK(values.entries(1).key() == "a/1");
    proto::GcsRequest exists;
    exists.mutable_kv_exists()->set_name_space("ns");
    for (const char* key : {"b", "missing", "a/1"}) exists.mutable_kv_exists()->add_keys(key);
    CHECK(world.Ask(client, exists).kv_count().count() == 2);
  }
  WHEN("keys are listed") {
    proto::GcsRequest keys;
    keys.mutable_kv_keys()->set_name_space("ns");
    keys.mutable_kv_keys()->set_prefix("a/");
    const proto::KvKeyList list = world.Ask(client, keys).kv_keys();
    CHECK(std::vector<std::string>(list.keys().begin(), list.keys().end()) ==
          std::vector<std::string>{"a/1", "a/2"});
    keys.mutable_kv_keys()->set_name_space("other");
    CHECK(world.Ask(client, keys).kv_keys().keys_size() == 0);
  }
  WHEN("keys are deleted") {
    CHECK(world.Ask(client, KvDelete("b", false)).kv_count().count() == 1);
    CHECK(world.Ask(client, KvDelete("b", false)).kv_count().count() == 0);
    CHECK(world.Ask(client, KvDelete("a/", true)).kv_count().count() == 2);
    CHECK(world.service().Stats().keys == 0);
    world.Restart();
    CHECK(world.service().Stats().keys == 0);
  }
  WHEN("the GCS restarts") {
    world.Restart();
    CHECK(world.Ask(client, KvGet("a/2")).kv_values().entries(0).value() == "two");
  }
}

SCENARIO("what is too large is refused") {
  GcsWorld world({.max_key_value_bytes = 100});
  const NodeNumber node = world.AddNode();
  CHECK(Is(world.Ask({node, 1}, KvPut(std::string(5000, 'k'), "v")), ErrorKind::kInvalidArgument));
  CHECK(Is(world.Ask({node, 1}, KvPut("k", std::string(KeyValueTable::kMaxValueBytes + 1, 'v'))),
           ErrorKind::kInvalidArgument));
  CHECK(Is(world.Ask({node, 1}, KvPut("k", std::string(60, 'v'))), ErrorKind::kNone));
  CHECK(Is(world.Ask({node, 1}, KvPut("l", std::string(60, 'v'))), ErrorKind::kInvalidArgument));
}

SCENARIO("a full store says what fills it and what to do") {
  GcsWorld world({.max_key_value_bytes = 200});
  const NodeNumber node = world.AddNode();
  const JobNumber job = world.AddJob(node, 1);
  proto::GcsRequest put = KvPut("function", std::string(50, 'v'));
  put.mutable_kv_put()->set_owner(job);
  world.Ask({node, 1}, put);
  world.Ask({node, 1}, KvPut("k", std::string(60, 'v')));
  const proto::GcsReply full = world.Ask({node, 1}, KvPut("l", std::string(90, 'v')));
  CHECK(Is(full, ErrorKind::kInvalidArgument));
  for (const char* words :
       {"131 of 200 bytes", "64 are functions, packages", "97 more", "sheaf kv list"})
    CHECK_THAT(full.message(), Catch::Contains(words));
  // What takes the place of another value needs only the difference.
  CHECK(Is(world.Ask({node, 1}, KvPut("k", std::string(120, 'v'))), ErrorKind::kNone));
}

// Jobs that own keys.
struct OwnersWorld : GcsWorld {
  proto::GcsReply Put(JobNumber job, const std::string& key, const std::string& value = "code",
                      bool overwrite = false) {
    proto::GcsRequest request = KvPut(key, value, overwrite);
    request.mutable_kv_put()->set_owner(job);
    return Ask({node, job}, request);
  }
  uint64_t Own(JobNumber job, const std::vector<std::string>& keys) {
    proto::GcsRequest request;
    request.mutable_kv_own()->set_name_space("ns");
    for (const std::string& key : keys) request.mutable_kv_own()->add_keys(key);
    request.mutable_kv_own()->set_owner(job);
    return Ask({node, job}, request).kv_count().count();
  }
  void Finish(JobNumber job) {
    proto::GcsRequest request;
    request.mutable_finish_job()->set_job(job);
    CHECK(Is(Ask({node, job}, request), ErrorKind::kNone));
  }
  // And it says that the drivers of these jobs live.
  void RestartWith(const std::vector<JobNumber>& jobs) {
    Restart();
    proto::NodeReport report;
    for (const JobNumber job : jobs) report.add_processes(ProcessId{node, job}.packed());
    ReportNode(node, report);
  }
  bool Has(const std::string& key) {
    return Ask({node, 1}, KvGet(key)).kv_values().entries_size() == 1;
  }
  size_t OwnerRows() {
    size_t rows = 0;
    for (const auto& [key, value] : disk()) rows += key.first == Table::kKeyOwners;
    return rows;
  }

  const NodeNumber node = AddNode();
  const JobNumber first = AddJob(node, 1);
  const JobNumber second = AddJob(node, 2);
};

SCENARIO("what jobs put goes with the last of them, and users' keys stay") {
  OwnersWorld world;
  world.Ask({world.node, 1}, KvPut("users", "value"));
  CHECK(Is(world.Put(world.first, "package", "zip"), ErrorKind::kNone));
  const int commits = world.storage().commits;
  CHECK_FALSE(world.Put(world.first, "package", "zip").kv_put().added());
  CHECK(world.storage().commits == commits);
  CHECK_FALSE(world.Put(world.second, "package", "zip").kv_put().added());
  CHECK(Is(world.Put(world.first, "users"), ErrorKind::kNone));  // Not its own by that.
  world.Put(world.first, "function");
  world.Finish(world.first);
  CHECK_FALSE(world.Has("function"));
  CHECK(world.Has("package"));
  world.RestartWith({world.second});
  CHECK(world.Has("package"));
  world.Finish(world.second);
  CHECK_FALSE(world.Has("package"));
  CHECK(world.Has("users"));
  CHECK(world.service().Stats().keys == 1);
  CHECK(world.OwnerRows() == 0);
}

SCENARIO("a job that ended while no GCS ran leaves nothing") {
  OwnersWorld world;
  world.Put(world.first, "function");
  world.Put(world.second, "package");
  world.RestartWith({world.second});
  CHECK_FALSE(world.Has("function"));
  CHECK(world.Has("package"));
}

SCENARIO("all parts of a package become a job's own, or none") {
  OwnersWorld world;
  world.Put(world.first, "p/0");
  world.Put(world.first, "p");
  CHECK(world.Own(world.second, {"p/0", "p/1", "p"}) == 2);
  CHECK(world.OwnerRows() == 2);
  world.Put(world.first, "p/1");
  CHECK(world.Own(world.second, {"p/0", "p/1", "p"}) == 3);
  world.Finish(world.first);
  CHECK((world.Has("p/0") && world.Has("p/1") && world.Has("p")));
  world.Finish(world.second);
  CHECK(world.service().Stats().keys == 0);
}

SCENARIO("a job that is over owns nothing any more") {
  OwnersWorld world;
  world.Put(world.second, "package");
  world.Finish(world.first);
  CHECK(Is(world.Put(world.first, "late"), ErrorKind::kInvalidArgument));
  CHECK(Is(world.Put(77, "of no job"), ErrorKind::kInvalidArgument));
  CHECK(world.Own(world.first, {"package"}) == 0);
  world.Finish(world.second);
  CHECK(world.service().Stats().keys == 0);
}

SCENARIO("owned keys can be deleted and taken over") {
  OwnersWorld world;
  world.Put(world.first, "a");
  CHECK(world.Ask({world.node, 2}, KvDelete("a", false)).kv_count().count() == 1);
  CHECK(world.OwnerRows() == 0);
  world.Put(world.first, "b");
  world.Ask({world.node, 2}, KvPut("b", "a user's now"));
  CHECK(world.OwnerRows() == 0);
  world.Finish(world.first);
  CHECK(world.Has("b"));
}

SCENARIO("keys are listed with their sizes and owners") {
  OwnersWorld world;
  world.Put(world.first, "a/1", "12345");
  world.Put(world.second, "a/1", "12345");
  world.Ask({world.node, 1}, KvPut("b", "123"));
  proto::GcsRequest list;
  list.mutable_kv_list()->set_all_name_spaces(true);
  proto::KvListing all = world.Ask({world.node, 1}, list).kv_listing();
  REQUIRE(all.entries_size() == 2);
  CHECK(all.entries(0).name_space() == "ns");
  CHECK(all.entries(0).bytes() == 5);
  CHECK(all.entries(0).owners_size() == 2);
  CHECK(all.entries(1).owners_size() == 0);
  CHECK(all.bytes() == 8);
  CHECK(all.store_bytes() == world.service().Stats().key_value_bytes);
  list.mutable_kv_list()->set_limit(1);
  all = world.Ask({world.node, 1}, list).kv_listing();
  CHECK((all.entries_size() == 1 && all.keys() == 2));
  list.mutable_kv_list()->set_prefix("b");
  CHECK(world.Ask({world.node, 1}, list).kv_listing().entries(0).key() == "b");
  list.mutable_kv_list()->set_all_name_spaces(false);
  CHECK(world.Ask({world.node, 1}, list).kv_listing().keys() == 0);
}

}  // namespace key_value_test
}  // namespace sheaf
