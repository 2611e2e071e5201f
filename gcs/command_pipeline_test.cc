// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Through GcsService and its key-value commands, which use all of it.
#include "gcs/command_pipeline.h"

#include <catch2/catch.hpp>

#include "gcs/gcs_world_for_test.h"

namespace sheaf {
namespace command_pipeline_test {

proto::GcsRequest WithSequence(proto::GcsRequest request, uint64_t sequence,
                               uint64_t confirmed = 0) {
  request.set_sequence(sequence);
  request.set_confirmed_up_to(confirmed);
  return request;
}

size_t AnswerRows(GcsWorld& world) {
  size_t rows = 0;
  for (const auto& [key, value] : world.disk()) rows += key.first == Table::kAnswers;
  return rows;
}

SCENARIO("nobody hears of a write before it is durable") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId writer{node, 1};
  const ProcessId reader{node, 2};
  world.storage().hold = true;
  const uint64_t put = world.Send(writer, KvPut("key", "value"));
  CHECK(world.RepliesTo(writer, put).empty());
  CHECK(world.Ask(reader, KvGet("key")).kv_values().entries_size() == 0);
  WHEN("the disk has it") {
    world.storage().ReleaseAll();
    REQUIRE(world.RepliesTo(writer, put).size() == 1);
    CHECK(world.RepliesTo(writer, put)[0].kv_put().added());
    CHECK(world.Ask(reader, KvGet("key")).kv_values().entries(0).value() == "value");
  }
  WHEN("the GCS dies first") {
    world.Restart();
    CHECK(world.Ask(reader, KvGet("key")).kv_values().entries_size() == 0);
  }
}

SCENARIO("a command that is repeated while it is in progress runs once and is answered once") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  world.storage().hold = true;
  const auto put = WithSequence(KvPut("key", "value", /*overwrite=*/false), 1);
  const int commits = world.storage().commits;
  for (int i = 0; i < 3; ++i) world.Repeat(client, put);
  CHECK(world.storage().commits == commits + 1);
  world.storage().ReleaseAll();
  REQUIRE(world.RepliesTo(client, 1).size() == 1);
  CHECK(world.RepliesTo(client, 1)[0].kv_put().added());
}

SCENARIO("a repeat gets the first answer until it is confirmed, also from the next GCS") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  const auto put = WithSequence(KvPut("key", "first", /*overwrite=*/false), 1);
  world.Repeat(client, put);
  world.Ask({node, 2}, KvPut("key", "second"));
  const bool restarted = GENERATE(false, true);
  if (restarted) world.Restart();
  world.transport.sent.clear();
  world.Repeat(client, put);
  REQUIRE(world.RepliesTo(client, 1).size() == 1);
  CHECK(world.RepliesTo(client, 1)[0].kv_put().added());
  CHECK(world.Ask({node, 3}, KvGet("key")).kv_values().entries(0).value() == "second");
  CHECK(world.service().Stats().repeats == 1);
}

SCENARIO("a confirmed command that turns up again is dropped, also by the next GCS") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  world.Repeat(client, WithSequence(KvPut("key", "old"), 1));
  world.Repeat(client, WithSequence(KvPut("key", "new"), 2, /*confirmed=*/1));
  CHECK(AnswerRows(world) == 2);  // The answer to 2, and that 1 is confirmed.
  const bool restarted = GENERATE(false, true);
  if (restarted) world.Restart();
  world.transport.sent.clear();
  world.Repeat(client, WithSequence(KvPut("key", "old"), 1));
  CHECK(world.RepliesTo(client, 1).empty());
  CHECK(world.Ask({node, 2}, KvGet("key")).kv_values().entries(0).value() == "new");
}

SCENARIO("what a client has on disk goes with it") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  for (int i = 0; i < 5; ++i) world.Ask({node, 1}, KvPut("key", "value"));
  CHECK(AnswerRows(world) == 5);
  proto::GcsRequest gone;
  gone.mutable_process_gone()->set_process(ProcessId{node, 1}.packed());
  world.Ask(RayletOf(node), gone);
  world.Ask({node, 2}, KvPut("key", "value"));  // The deletions ride with it.
  CHECK(AnswerRows(world) == 1);
}

SCENARIO("commands on one key run one after the other, on different keys together") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  world.storage().hold = true;
  const int commits = world.storage().commits;
  const uint64_t first = world.Send({node, 1}, KvPut("key", "1", /*overwrite=*/false));
  const uint64_t second = world.Send({node, 2}, KvPut("key", "2", /*overwrite=*/false));
  const uint64_t other = world.Send({node, 3}, KvPut("other", "3", /*overwrite=*/false));
  CHECK(world.storage().commits == commits + 2);
  world.storage().ReleaseAll();
  CHECK(world.RepliesTo({node, 1}, first)[0].kv_put().added());
  CHECK_FALSE(world.RepliesTo({node, 2}, second)[0].kv_put().added());
  CHECK(world.RepliesTo({node, 3}, other)[0].kv_put().added());
  CHECK(world.Ask({node, 1}, KvGet("key")).kv_values().entries(0).value() == "1");
}

SCENARIO("a hundred thousand commands behind one latch need no deep stack") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  world.storage().hold = true;
  world.Send({node, 1}, KvPut("key", "1", /*overwrite=*/false));
  for (uint32_t i = 0; i < 100'000; ++i)
    world.Send({node, 2 + i % 100}, KvPut("key", "2", /*overwrite=*/false));
  CHECK(world.service().Stats().in_progress == 100'001);
  world.storage().ReleaseAll();
  CHECK(world.service().Stats().in_progress == 0);
}

SCENARIO(
    "on a full disk commands fail with a typed error, questions are answered, and it goes on by "
    "itself") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  world.Ask(client, KvPut("key", "before"));
  world.storage().full = true;
  CHECK(Is(world.Ask(client, KvPut("key", "during")), ErrorKind::kGcsStorageFull));
  CHECK(world.Ask(client, KvGet("key")).kv_values().entries(0).value() == "before");
  CHECK(world.service().Stats().read_only);
  world.storage().full = false;
  CHECK(Is(world.Ask(client, KvPut("key", "after")), ErrorKind::kNone));
  CHECK(world.Ask(client, KvGet("key")).kv_values().entries(0).value() == "after");
}

SCENARIO("a client that never confirms is refused in the end") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  for (size_t i = 0; i < CommandPipeline::kMaxAnswersPerClient; ++i)
    world.Send({node, 1}, KvPut("key", "value"));
  CHECK(Is(world.Ask({node, 1}, KvPut("key", "value")), ErrorKind::kInvalidArgument));
  auto confirming = KvPut("key", "value");
  confirming.set_confirmed_up_to(CommandPipeline::kMaxAnswersPerClient);
  CHECK(Is(world.Ask({node, 1}, confirming), ErrorKind::kNone));
}

}  // namespace command_pipeline_test
}  // namespace sheaf
