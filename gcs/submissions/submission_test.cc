// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submissions from the request to the end: which node, how often told, what of it survives.
#include <catch2/catch.hpp>

#include "gcs/submissions/submission_world_for_test.h"

namespace sheaf {
namespace submission_test {

using S = proto::Submission;

SCENARIO("a submission runs once, and its end is remembered") {
  SubmissionWorld world;
  CHECK(world.Submit("one").submission().state() == S::STARTING);
  const auto starts = world.TakeStarts(world.node);
  REQUIRE(starts.size() == 1);
  CHECK(starts[0].entrypoint().command() == "python main.py");
  CHECK(starts[0].attempt() == world.Get("one").attempt());
  WHEN("nobody answers the order") {
    world.Pass(1200 * kMillisecond, {world.node});
    CHECK(world.TakeStarts(world.node).size() == 1);
  }
  WHEN("its raylet waits for something") {
    proto::EntrypointReport report = world.Report("one");
    report.set_pending("a package");
    world.Send(world.node, report);
    CHECK(world.Get("one").words() == "a package");
    CHECK(world.Get("one").state() == S::STARTING);
  }
  WHEN("it runs and ends well") {
    world.Runs("one");
    CHECK(world.Get("one").state() == S::RUNNING);
    CHECK(world.Get("one").os_pid() == 77);
    world.Pass(10 * kSecond, {world.node});
    CHECK(world.TakeStarts(world.node).empty());
    CHECK(world.service().Stats().submissions[S::RUNNING] == 1);
    world.Ends("one", 0);
    CHECK(world.Get("one").state() == S::SUCCEEDED);
    const GcsStats stats = world.service().Stats();
    CHECK(stats.submissions[S::RUNNING] == 0);
    CHECK(stats.submissions_told[S::PENDING] == 1);
    CHECK(stats.submissions_told[S::SUCCEEDED] == 1);
    world.Runs("one");  // A repeat that comes late.
    CHECK(world.Get("one").state() == S::SUCCEEDED);
    world.TakeStarts(world.node);
    CHECK(world.stops.size() == 1);  // It shall not run there.
  }
  WHEN("it ends before it was heard to run") {
    world.Ends("one", 3);
    CHECK(world.Get("one").state() == S::FAILED);
    CHECK(world.Get("one").failure() == S::COMMAND);
    CHECK(world.Get("one").death().code() == 3);
    CHECK(world.service().Stats().submissions_told[S::FAILED] == 1);
  }
  WHEN("its environment cannot be made") {
    proto::EntrypointReport report = world.Report("one");
    report.mutable_ended()->set_setup_failed(true);
    world.Send(world.node, report);
    CHECK(world.Get("one").failure() == S::SETUP);
  }
  WHEN("its node dies") {
    world.Runs("one");
    const NodeNumber other = world.AddNode();
    world.Pass(6 * kSecond, {other});
    CHECK(world.Get("one").state() != S::FAILED);  // Asked through a node that has no say any more.
    world.tool = RayletOf(other);
    CHECK(world.Get("one").state() == S::FAILED);
    CHECK(world.Get("one").failure() == S::NODE_DIED);
    CHECK(world.TakeStarts(other).empty());
  }
}

SCENARIO("of two submissions with one id one is accepted") {
  SubmissionWorld world;
  world.storage().hold = true;
  const uint64_t a = world.GcsWorld::Send(world.tool, world.Submission("one"));
  auto second = world.Submission("one");
  second.mutable_submit_entrypoint()->mutable_entrypoint()->set_command("other");
  const uint64_t b = world.GcsWorld::Send(world.tool, second);
  CHECK(world.RepliesTo(world.tool, a).empty());  // Not before it is on disk.
  world.storage().ReleaseAll();
  world.storage().hold = false;
  CHECK(Is(world.RepliesTo(world.tool, a).at(0), ErrorKind::kNone));
  CHECK(Is(world.RepliesTo(world.tool, b).at(0), ErrorKind::kActorNameTaken));
  CHECK(world.Get("one").entrypoint().command() == "python main.py");
  THEN("who repeats its own request by its key gets the first answer") {
    auto keyed = world.Submission("two");
    keyed.mutable_submit_entrypoint()->set_idempotency_key("key");
    CHECK(Is(world.Ask(world.tool, keyed), ErrorKind::kNone));
    CHECK(world.Ask(world.tool, keyed).submission().number() == 2);
    CHECK(world.TakeStarts(world.node).size() == 2);
    keyed.mutable_submit_entrypoint()->set_idempotency_key("other key");
    CHECK(Is(world.Ask(world.tool, keyed), ErrorKind::kActorNameTaken));
  }
}

SCENARIO("what no submission can be is refused") {
  SubmissionWorld world;
  for (const std::string& id : {std::string(), std::string("a b"), std::string("../x"),
                                std::string("."), std::string(".."), std::string(129, 'x')}) {
    CAPTURE(id);
    CHECK(Is(world.Submit(id), ErrorKind::kInvalidArgument));
  }
  CHECK(Is(world.Submit(std::string(128, 'x')), ErrorKind::kNone));
  auto request = world.Submission("one");
  proto::Entrypoint* wanted = request.mutable_submit_entrypoint()->mutable_entrypoint();
  wanted->add_environ("no equals sign");
  CHECK(Is(world.Ask(world.tool, request), ErrorKind::kInvalidArgument));
  wanted->clear_environ();
  wanted->set_command("");
  CHECK(Is(world.Ask(world.tool, request), ErrorKind::kInvalidArgument));
  for (const size_t size : {97 << 10, 300 << 10}) {  // Of a text that Linux takes; of all together.
    wanted->set_command(std::string(size, 'x'));
    CHECK(Is(world.Ask(world.tool, request), ErrorKind::kInvalidArgument));
    wanted->set_command("true");
    wanted->set_runtime_env(std::string(size / 2, 'x'));
    wanted->set_metadata(std::string(size / 2 + 1, 'x'));
    CHECK(Is(world.Ask(world.tool, request), ErrorKind::kInvalidArgument));
    wanted->clear_runtime_env();
    wanted->clear_metadata();
    wanted->add_environ("LONG=" + std::string(size, 'x'));
    CHECK(Is(world.Ask(world.tool, request), ErrorKind::kInvalidArgument));
    wanted->clear_environ();
  }
  CHECK(Is(world.Submit("much", -1), ErrorKind::kInvalidArgument));
}

SCENARIO("a submission that wants nothing runs elsewhere while the head's node drains") {
  SubmissionWorld world;  // Its node is the head's: as the GCS, it has no address.
  proto::GcsRequest drain;
  drain.mutable_unregister_node()->set_node(world.node);
  drain.mutable_unregister_node()->set_drain_only(true);
  world.Ask(world.tool, drain);
  CHECK(world.Submit("waits").submission().state() == S::PENDING);
  CHECK_THAT(world.Get("waits").words(), Catch::Contains("all are draining or dead"));
  proto::GcsRequest joins;
  joins.mutable_register_node()->set_nonce("another node's .");
  joins.mutable_register_node()->set_version(GcsOptions().version);
  joins.mutable_register_node()->set_address("10.0.0.2:1");
  (*joins.mutable_register_node()->mutable_total()->mutable_amounts())["CPU"] = 20'000;
  const NodeNumber other = world.Ask({0, 99}, joins).node_registered().node();
  REQUIRE(other != 0);
  CHECK(world.Submit("runs").submission().node() == other);
  world.Pass(2500 * kMillisecond, {world.node, other});
  CHECK(world.Get("waits").node() == other);
}

SCENARIO("a submission that wants resources waits for a node with room") {
  SubmissionWorld world;  // A node has 2 CPUs.
  CHECK(world.Submit("large", 16).submission().state() == S::PENDING);
  CHECK_FALSE(world.Get("large").words().empty());
  proto::GcsRequest heartbeat;
  (*heartbeat.mutable_heartbeat()->mutable_available()->mutable_amounts())["CPU"] = 20'000;
  world.Tell(RayletOf(world.node), heartbeat);
  CHECK(world.Submit("fits", 2).submission().state() == S::STARTING);
  THEN("what was ordered counts as taken") {
    CHECK(world.Submit("later", 1).submission().state() == S::PENDING);
    world.Ends("fits", 0);
    world.Pass(1100 * kMillisecond, {world.node});
    CHECK(world.Get("later").state() == S::STARTING);
  }
  THEN("one that its raylet gives back is looked at again, in another attempt") {
    const uint32_t first = world.Get("fits").attempt();
    world.GivesBack("fits");
    CHECK(world.Get("fits").state() == S::PENDING);
    world.Ends("fits", 0, first);  // It is over.
    CHECK(world.Get("fits").state() == S::PENDING);
    world.Pass(2500 * kMillisecond, {world.node});
    CHECK(world.Get("fits").state() == S::STARTING);
    CHECK(world.Get("fits").attempt() > first);
  }
  THEN("it fails when its time to start is over, and is not begun afterwards") {
    world.Pass(901 * kSecond, {world.node});
    CHECK(world.Get("large").state() == S::FAILED);
    CHECK(world.Get("large").failure() == S::NOT_STARTED_IN_TIME);
    CHECK(world.Get("fits").state() == S::STARTING);  // Its raylet may have begun it:
    world.TakeStarts(world.node);
    REQUIRE_FALSE(world.stops.empty());  // it is told to end it, until it says that it has.
    world.GivesBack("fits");
    CHECK(world.Get("fits").state() == S::FAILED);
    CHECK(world.Get("fits").failure() == S::NOT_STARTED_IN_TIME);
  }
}

SCENARIO("a submission is stopped in each of its states") {
  SubmissionWorld world;
  CHECK(Is(world.Stop("none"), ErrorKind::kNotFound));
  WHEN("it waits for a node") {
    world.Submit("large", 16);
    CHECK(world.Stop("large").submission().state() == S::STOPPED);
    CHECK(world.TakeStarts(world.node).empty());
  }
  WHEN("its raylet was told to start it") {
    world.Submit("one");
    CHECK(world.Stop("one").submission().stopping());
    world.TakeStarts(world.node);
    CHECK(world.stops.size() == 1);
    world.Pass(1200 * kMillisecond, {world.node});
    CHECK(world.TakeStarts(world.node).empty());  // Not to start it, however long it takes;
    CHECK(world.stops.size() == 2);               // to end it, again.
    world.GivesBack("one");
    CHECK(world.Get("one").state() == S::STOPPED);
  }
  WHEN("it runs") {
    world.Submit("one");
    world.Runs("one");
    world.Stop("one");
    CHECK(world.Get("one").state() == S::RUNNING);
    world.Ends("one", 143);
    CHECK(world.Get("one").state() == S::STOPPED);
  }
  WHEN("it ends well while it is being stopped") {
    world.Submit("one");
    world.Stop("one");
    world.Ends("one", 0);
    CHECK(world.Get("one").state() == S::SUCCEEDED);
  }
  WHEN("it has ended") {
    world.Submit("one");
    world.Ends("one", 1);
    CHECK(world.Stop("one").submission().state() == S::FAILED);
    CHECK(world.Get("one").state() == S::FAILED);
  }
}

SCENARIO("submissions survive a restart of the GCS") {
  SubmissionWorld world;
  world.Submit("ordered");
  world.Submit("runs");
  world.Runs("runs");
  world.Submit("stops");
  world.Runs("stops");
  world.Stop("stops");
  world.Submit("ended");
  world.Ends("ended", 0);
  world.Submit("waits", 16);
  world.Restart();
  CHECK(world.Get("ended").state() == S::SUCCEEDED);
  CHECK(world.Submit("early").submission().state() == S::PENDING);  // No orders before the reports.
  CHECK(world.TakeStarts(world.node).empty());
  proto::NodeReport report;
  for (const char* id : {"runs", "stops"}) {
    *report.add_entrypoints() = world.Report(id);
    report.mutable_entrypoints(report.entrypoints_size() - 1)->mutable_running()->set_os_pid(77);
  }
  WHEN("its raylet still has them") {
    world.ReportNode(world.node, report);
    world.Pass(200 * kMillisecond, {world.node});
    CHECK(world.Get("runs").state() == S::RUNNING);
    CHECK(world.Get("waits").state() == S::PENDING);
    std::set<std::string> started;
    for (const auto& start : world.TakeStarts(world.node))
      started.insert(start.entrypoint().submission_id());
    CHECK(started == std::set<std::string>{"early", "ordered"});
    REQUIRE(world.stops.size() == 1);
    CHECK(world.stops[0].submission_id() == "stops");
  }
  WHEN("its raylet has lost one that ran") {
    world.ReportNode(world.node, {});
    CHECK(world.Get("runs").state() == S::FAILED);
    CHECK(world.Get("stops").state() == S::STOPPED);
    CHECK(world.Get("ordered").state() == S::STARTING);
  }
  WHEN("one has ended meanwhile") {
    report.mutable_entrypoints(0)->mutable_ended()->mutable_death()->set_cause(
        proto::Death::EXITED);
    world.ReportNode(world.node, report);
    CHECK(world.Get("runs").state() == S::SUCCEEDED);
  }
}

SCENARIO("an uploaded package stays while somebody may need it, and goes a while after") {
  constexpr Nanos kHour = 3600 * kSecond;
  SubmissionWorld world;
  const ProcessId client{world.node, 1};
  const auto put = [&](const std::string& key) {
    proto::GcsRequest request;
    request.mutable_kv_put()->set_name_space("sheaf-packages");
    request.mutable_kv_put()->set_key(key);
    request.mutable_kv_put()->set_value("x");
    request.mutable_kv_put()->set_overwrite(true);
    request.mutable_kv_put()->set_owner(UINT32_MAX);
    CHECK(Is(world.Ask(client, request), ErrorKind::kNone));
  };
  const auto count = [&] {  // Asks without being taken for somebody who needs them.
    proto::GcsRequest request;
    request.mutable_kv_keys()->set_name_space("sheaf-packages");
    return world.Ask(client, request).kv_keys().keys_size();
  };
  const auto pass = [&](Nanos time) {
    for (Nanos passed = 0; passed < time; passed += 10 * kSecond)
      world.Pass(10 * kSecond, {world.node});
  };
  put("p.zip/0");
  put("p.zip");
  pass(kHour - 2 * 60 * kSecond);
  CHECK(count() == 2);
  WHEN("nobody asks for it") {
    pass(4 * 60 * kSecond);
    CHECK(count() == 0);
  }
  WHEN("somebody looks whether it is there") {
    proto::GcsRequest request;
    request.mutable_kv_exists()->set_name_space("sheaf-packages");
    request.mutable_kv_exists()->add_keys("p.zip");
    CHECK(world.Ask(client, request).kv_count().count() == 1);
    pass(kHour - 2 * 60 * kSecond);
    CHECK(count() == 2);
    pass(4 * 60 * kSecond);
    CHECK(count() == 0);
  }
  WHEN("a submission names it") {
    proto::GcsRequest request = SubmissionWorld::Submission("one");
    request.mutable_submit_entrypoint()->mutable_entrypoint()->set_runtime_env(
        R"({"py_modules":["gcs://p.zip","gcs:\/\/p.zip"],"working_dir":"gcs://other.zip"})");
    CHECK(Is(world.Ask(world.tool, request), ErrorKind::kNone));
    world.Ends("one", 0);
    pass(2 * kHour);
    CHECK(count() == 2);
    world.Restart();
    pass(2 * kHour);
    CHECK(count() == 2);
    CHECK(Is(world.Delete("one"), ErrorKind::kNone));
    pass(2 * 60 * kSecond);
    CHECK(count() == 0);
  }
  WHEN("a job that runs has named it") {
    proto::GcsRequest job;
    job.mutable_register_job()->set_driver(client.packed());
    const uint32_t number = world.Ask(world.tool, job).job_registered().job();
    REQUIRE(number != 0);
    proto::GcsRequest own;
    own.mutable_kv_own()->set_name_space("sheaf-packages");
    own.mutable_kv_own()->add_keys("p.zip");
    own.mutable_kv_own()->add_keys("p.zip/0");
    own.mutable_kv_own()->set_owner(number);
    CHECK(world.Ask(client, own).kv_count().count() == 2);
    pass(2 * kHour);
    CHECK(count() == 2);
    proto::GcsRequest finish;
    finish.mutable_finish_job()->set_job(number);
    world.Ask(world.tool, finish);
    pass(2 * 60 * kSecond);
    CHECK(count() == 0);
  }
}

}  // namespace submission_test
}  // namespace sheaf
