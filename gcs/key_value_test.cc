// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "gcs/gcs_world.h"
#include "gcs/key_value_table.h"

namespace sheaf {
namespace {

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

}  // namespace

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

SCENARIO("functions are put once and go with the last job that needs them") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const JobNumber first = world.AddJob(node, 1);
  const JobNumber second = world.AddJob(node, 2);
  const auto put = [&](uint32_t process, JobNumber job, const std::string& data) {
    proto::GcsRequest request;
    request.mutable_put_blob()->set_hash("hash");
    request.mutable_put_blob()->set_data(data);
    request.mutable_put_blob()->set_job(job);
    return world.Ask({node, process}, request);
  };
  const auto finish = [&](uint32_t process, JobNumber job) {
    proto::GcsRequest request;
    request.mutable_finish_job()->set_job(job);
    return world.Ask({node, process}, request);
  };
  proto::GcsRequest get;
  get.mutable_get_blob()->set_hash("hash");
  CHECK(Is(world.Ask({node, 1}, get), ErrorKind::kNotFound));
  CHECK(Is(put(1, first, "code"), ErrorKind::kNone));
  const int commits = world.storage().commits;
  CHECK(Is(put(1, first, "code"), ErrorKind::kNone));
  CHECK(world.storage().commits == commits);
  CHECK(Is(put(2, second, "code"), ErrorKind::kNone));
  CHECK(Is(put(2, second, "other code"), ErrorKind::kInvalidArgument));
  CHECK(Is(finish(1, first), ErrorKind::kNone));
  world.Restart();
  world.ReportNode(node, [&] {
    proto::NodeReport report;
    report.add_processes(ProcessId{node, 2}.packed());
    return report;
  }());
  CHECK(world.Ask({node, 1}, get).blob().data() == "code");
  CHECK(Is(finish(2, second), ErrorKind::kNone));
  CHECK(Is(world.Ask({node, 1}, get), ErrorKind::kNotFound));
  CHECK(world.service().Stats().blob_bytes == 0);
  for (const auto& [key, value] : world.disk()) CHECK(key.first != Table::kBlobs);
}

}  // namespace sheaf
