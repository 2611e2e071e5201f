// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/gcs_service.h"

#include <catch2/catch.hpp>

#include "gcs/gcs_operations.h"
#include "gcs/gcs_world_for_test.h"

namespace sheaf {
namespace gcs_service_test {

proto::GcsRequest SubscribeTo(proto::Subscribe::Channel channel, uint64_t subscription,
                              const std::string& key = "", const std::string& name_space = "") {
  proto::GcsRequest request;
  request.mutable_subscribe()->set_subscription(subscription);
  request.mutable_subscribe()->set_channel(channel);
  request.mutable_subscribe()->set_key(key);
  request.mutable_subscribe()->set_name_space(name_space);
  return request;
}

SCENARIO("every request of the protocol has an operation, and is answered") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  int known = 0;
  for (int body = 1; body < 128; ++body) {
    const GcsOperation operation = OperationOf(static_cast<proto::GcsRequest::BodyCase>(body));
    if (operation.name == nullptr) continue;
    ++known;
    // An empty message of each kind: tag of the field, length 0.
    proto::GcsRequest request;
    request.set_client(RayletOf(node).packed());
    request.set_sequence(1000 + static_cast<uint64_t>(body));
    std::string bytes = request.SerializeAsString();
    const int tag = body << 3 | 2;
    if (tag > 127) bytes.push_back(static_cast<char>((tag & 0x7f) | 0x80));
    bytes.push_back(static_cast<char>(tag > 127 ? tag >> 7 : tag));
    bytes.push_back('\0');
    if (body == proto::GcsRequest::kUnregisterNode) continue;  // Ends the asker.
    world.service().OnFrame(RayletOf(node), {FrameKind::kGcsRequest, bytes});
    INFO(operation.name);
    CHECK(world.RepliesTo(RayletOf(node), 1000 + static_cast<uint64_t>(body)).size() == 1);
  }
  CHECK(known == 40);
}

SCENARIO("frames that make no sense are dropped or refused, and harm nobody") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const size_t sent = world.transport.sent.size();
  world.service().OnFrame(RayletOf(node), {FrameKind::kGcsRequest, "\xff\xff\xff\xff"});
  world.service().OnFrame(RayletOf(node), {FrameKind::kLeaseDemand, ""});
  world.service().OnFrame(kGcs, {FrameKind::kGcsRequest, ""});
  CHECK(world.transport.sent.size() == sent);
  CHECK(world.service().Stats().malformed == 3);
  WHEN("a process speaks for one of another node") {
    auto request = KvPut("key", "value");
    request.set_client(ProcessId{node + 1, 1}.packed());
    world.service().OnFrame(RayletOf(node), {FrameKind::kGcsRequest, request.SerializeAsString()});
    CHECK(world.service().Stats().keys == 0);
  }
  WHEN("a process asks for what only raylets may") {
    proto::GcsRequest request;
    request.mutable_process_gone()->set_process(ProcessId{node, 2}.packed());
    CHECK(Is(world.Ask({node, 1}, request), ErrorKind::kInvalidArgument));
  }
  WHEN("a node that was never registered asks") {
    CHECK(Is(world.Ask({99, 1}, KvPut("key", "value")), ErrorKind::kNodeDied));
  }
  WHEN("the channel does not exist") {
    auto request = SubscribeTo(static_cast<proto::Subscribe::Channel>(77), 1);
    CHECK(Is(world.Ask({node, 1}, request), ErrorKind::kInvalidArgument));
  }
  WHEN("the bytes are random") {
    SeededRandom random(5);
    for (int i = 0; i < 20'000; ++i) {
      std::string bytes = KvPut("key", "value").SerializeAsString();
      proto::GcsRequest header;
      header.set_client(RayletOf(node).packed());
      bytes += header.SerializeAsString();
      for (int flips = 0; flips < 3; ++flips)
        bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
      world.service().OnFrame(RayletOf(node), {FrameKind::kGcsRequest, bytes});
    }
    world.service().Tick();
    CHECK(Is(world.Ask({node, 1}, KvGet("key")), ErrorKind::kNone));
  }
}

SCENARIO("nothing is answered before the term is durable, and each start has a term of its own") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  CHECK(world.service().Stats().term == 1);
  world.Restart();
  CHECK(world.service().Stats().term == 2);
  GIVEN("a disk that is full when the GCS starts") {
    InlineExecutor executor;
    MemoryStorage storage(world.disk(), executor);
    storage.full = storage.no_reserve = true;
    SeededRandom random(2);
    RecordingTransport transport;
    GcsService service({}, world.clock, storage, transport, random);
    REQUIRE(service.Start().ok());
    auto request = KvPut("key", "value");
    request.set_client(ProcessId{node, 1}.packed());
    request.set_sequence(1);
    service.OnFrame(RayletOf(node), {FrameKind::kGcsRequest, request.SerializeAsString()});
    service.Tick();
    CHECK(transport.sent.empty());
    storage.full = false;
    service.Tick();
    CHECK(service.Stats().keys == 1);
    CHECK(service.Stats().term == 3);
  }
}

SCENARIO("a disk of another cluster is refused") {
  GcsWorld world;
  InlineExecutor executor;
  MemoryStorage storage(world.disk(), executor);
  SeededRandom random(2);
  GcsService other({.cluster_id = std::string(16, 'o')}, world.clock, storage, world.transport,
                   random);
  CHECK(other.Start().code() == absl::StatusCode::kFailedPrecondition);
  GcsService same({.cluster_id = world.service().cluster_id()}, world.clock, storage,
                  world.transport, random);
  CHECK(same.Start().ok());
}

SCENARIO("a GCS without members on its disk serves at once") {
  GcsWorld world;
  CHECK_FALSE(world.service().recovering());
}

SCENARIO("who ended while no GCS listened is forgotten with the report of its node") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const NodeNumber other = world.AddNode();
  for (const ProcessId client :
       {ProcessId{node, 1}, ProcessId{node, 2}, ProcessId{other, 1}, RayletOf(node)}) {
    world.Ask(client, SubscribeTo(proto::Subscribe::KEY_VALUES, 1));
  }
  CHECK(world.service().Stats().subscriptions == 4);
  proto::NodeReport report;
  report.add_processes(ProcessId{node, 2}.packed());
  world.ReportNode(node, report);
  CHECK(world.service().Stats().subscriptions == 3);
}

SCENARIO("after a restart keys are served at once, questions about nodes wait for their reports") {
  GcsWorld world;
  const NodeNumber a = world.AddNode();
  const NodeNumber b = world.AddNode();
  world.Ask({a, 1}, KvPut("key", "value"));
  world.Restart();
  CHECK(world.service().recovering());
  CHECK(world.Ask({a, 1}, KvGet("key")).kv_values().entries_size() == 1);
  CHECK(Is(world.Ask({a, 1}, KvPut("key", "other")), ErrorKind::kNone));
  proto::GcsRequest list;
  list.mutable_list_nodes();
  const uint64_t question = world.Send({a, 1}, list);
  const uint64_t subscription = world.Send({a, 1}, SubscribeTo(proto::Subscribe::NODES, 1));
  CHECK(world.RepliesTo({a, 1}, question).empty());
  proto::NodeReport report;
  (*report.mutable_available()->mutable_amounts())["CPU"] = 5'000;
  world.ReportNode(a, report);
  CHECK(world.RepliesTo({a, 1}, question).empty());
  world.ReportNode(b);
  REQUIRE(world.RepliesTo({a, 1}, question).size() == 1);
  const proto::NodeList nodes = world.RepliesTo({a, 1}, question)[0].nodes();
  CHECK(nodes.nodes(0).available().amounts().at("CPU") == 5'000);
  CHECK(world.RepliesTo({a, 1}, subscription)[0].snapshot().items_size() == 2);
}

SCENARIO(
    "a subscriber gets a snapshot and numbered deltas, and asks again when a number is missing") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId client{node, 1};
  world.Ask(client, KvPut("a/1", "one"));
  const auto subscribe = SubscribeTo(proto::Subscribe::KEY_VALUES, 4, "a/", "ns");
  const proto::Snapshot snapshot = world.Ask(client, subscribe).snapshot();
  CHECK(snapshot.subscription() == 4);
  CHECK(snapshot.number() == 0);
  REQUIRE(snapshot.items_size() == 1);
  CHECK(snapshot.items(0).key_value().value() == "one");

  world.Ask({node, 2}, KvPut("a/2", "two"));
  world.Ask({node, 2}, KvPut("b", "not wanted"));
  world.Ask({node, 2}, KvPut("a/1", "three"));
  proto::GcsRequest erase;
  erase.mutable_kv_delete()->set_name_space("ns");
  erase.mutable_kv_delete()->set_key("a/1");
  world.Ask({node, 2}, erase);
  const std::vector<proto::GcsEvent> events = world.TakeEvents(client);
  REQUIRE(events.size() == 3);
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK(events[i].delta().number() == i + 1);
    CHECK(events[i].delta().subscription() == 4);
    CHECK(events[i].delta().term() == 1);
  }
  CHECK(events[0].delta().change().key_value().value() == "two");
  CHECK(events[2].delta().change().key_value().deleted());

  auto again = subscribe;
  again.mutable_subscribe()->set_known_term(1);
  WHEN("it knows all") {
    again.mutable_subscribe()->set_known_number(3);
    const proto::Snapshot answer = world.Ask(client, again).snapshot();
    CHECK(answer.current());
    CHECK(answer.items_size() == 0);
  }
  WHEN("it has missed number 3") {
    again.mutable_subscribe()->set_known_number(2);
    const proto::Snapshot answer = world.Ask(client, again).snapshot();
    CHECK_FALSE(answer.current());
    CHECK(answer.number() == 3);
    REQUIRE(answer.items_size() == 1);
    CHECK(answer.items(0).key_value().key() == "a/2");
    world.Ask({node, 2}, KvPut("a/3", "four"));
    CHECK(world.TakeEvents(client).at(0).delta().number() == 4);
  }
  WHEN("the GCS restarts") {
    world.Restart();
    again.mutable_subscribe()->set_known_number(3);
    const proto::Snapshot answer = world.Ask(client, again).snapshot();
    CHECK_FALSE(answer.current());
    CHECK(answer.term() == 2);
    CHECK(answer.items_size() == 1);
  }
  WHEN("it unsubscribes") {
    proto::GcsRequest stop;
    stop.mutable_unsubscribe()->set_subscription(4);
    world.Ask(client, stop);
    world.Ask({node, 2}, KvPut("a/3", "four"));
    CHECK(world.TakeEvents(client).empty());
  }
  WHEN("it dies") {
    proto::GcsRequest gone;
    gone.mutable_process_gone()->set_process(client.packed());
    world.Ask(RayletOf(node), gone);
    world.Ask({node, 2}, KvPut("a/3", "four"));
    CHECK(world.TakeEvents(client).empty());
    CHECK(world.service().Stats().subscriptions == 0);
  }
}

SCENARIO("node, job and actor channels tell what happens, one actor's channel of that one only") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const ProcessId watcher{node, 7};
  CHECK(world.Ask(watcher, SubscribeTo(proto::Subscribe::NODES, 1)).snapshot().items_size() == 1);
  CHECK(world.Ask(watcher, SubscribeTo(proto::Subscribe::JOBS, 2)).snapshot().items_size() == 0);
  const ActorId wanted = ActorId::Make({node, 1}, 1);
  const ActorId unwanted = ActorId::Make({node, 1}, 2);
  CHECK(world.Ask(watcher, SubscribeTo(proto::Subscribe::ACTORS, 3, wanted.Binary()))
            .snapshot()
            .items_size() == 0);

  const NodeNumber other = world.AddNode();
  const JobNumber job = world.AddJob(node, 1);
  for (const ActorId& id : {wanted, unwanted}) {
    proto::GcsRequest request;
    request.mutable_register_actor()->set_actor_id(id.Binary());
    request.mutable_register_actor()->set_job(job);
    request.mutable_register_actor()->set_detached(true);
    world.Ask({node, 1}, request);
  }
  const std::vector<proto::GcsEvent> events = world.TakeEvents(watcher);
  REQUIRE(events.size() == 3);
  CHECK(events[0].delta().change().node().node() == other);
  CHECK(events[1].delta().change().job().job() == job);
  CHECK(events[2].delta().change().actor().actor_id() == wanted.Binary());

  world.Pass(6 * kSecond, {node});
  bool suspected = false;
  bool died = false;
  for (const proto::GcsEvent& event : world.TakeEvents(watcher)) {
    suspected |= event.delta().change().node().suspect();
    died |= event.delta().change().node().state() == proto::NodeInfo::DEAD;
  }
  CHECK(suspected);
  CHECK(died);
}

SCENARIO("what nodes have free is told at once in a small cluster, and of many nodes together") {
  GcsWorld world;
  const auto load = [&](NodeNumber node, int64_t cpus) {
    proto::GcsRequest request;
    (*request.mutable_heartbeat()->mutable_available()->mutable_amounts())["CPU"] = cpus;
    world.Ask(RayletOf(node), request);
  };
  std::vector<NodeNumber> nodes(200);
  for (NodeNumber& node : nodes) node = world.AddNode();
  const ProcessId watcher = RayletOf(nodes[0]);
  world.Ask(watcher, SubscribeTo(proto::Subscribe::NODES, 1));
  world.Pass(100 * kMillisecond, nodes);
  world.TakeEvents(watcher);

  load(nodes[1], 1);
  for (size_t i = 2; i < nodes.size(); ++i) load(nodes[i], static_cast<int64_t>(i));
  load(nodes[2], 7);
  world.Pass(100 * kMillisecond, nodes);
  const std::vector<proto::GcsEvent> events = world.TakeEvents(watcher);
  REQUIRE(events.size() == 2);
  proto::NodeLoads first, rest;
  REQUIRE(first.ParseFromString(events[0].delta().loads()));
  REQUIRE(first.columns_size() == 1);
  CHECK(first.columns(0).nodes_size() == 1);
  CHECK(first.columns(0).nodes(0) == nodes[1]);
  REQUIRE(rest.ParseFromString(events[1].delta().loads()));
  REQUIRE(rest.columns_size() == 1);
  CHECK(rest.columns(0).nodes_size() == 198);
  CHECK(rest.columns(0).amounts(0) == 7);  // As it is now.
  CHECK(events[1].delta().number() == events[0].delta().number() + 1);
}

SCENARIO("operations are counted by name") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  for (int i = 0; i < 3; ++i) world.Ask({node, 1}, KvPut("key", "value"));
  const GcsStats stats = world.service().Stats();
  const std::vector<std::pair<std::string, uint64_t>> expected = {{"register_node", 1},
                                                                  {"kv_put", 3}};
  CHECK(stats.requests == expected);
  CHECK(stats.nodes == 1);
  CHECK(stats.keys == 1);
}

}  // namespace gcs_service_test
}  // namespace sheaf
