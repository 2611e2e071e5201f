// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submissions that are forgotten: what is left of them, and for how long.
#include <catch2/catch.hpp>

#include "gcs/submissions/submission_world_for_test.h"

namespace sheaf {
namespace submission_forget_test {

using S = proto::Submission;

SCENARIO("a late word about a submission that was deleted is none about the next of its name") {
  SubmissionWorld world;
  world.Submit("one");
  const uint32_t first = world.Get("one").attempt();
  world.Runs("one");
  world.Ends("one", 0);
  world.Delete("one");
  const bool restarts = GENERATE(false, true);
  if (restarts) {
    world.Restart();
    world.ReportNode(world.node, {});
    world.Pass(2 * kSecond, {world.node});
  }
  CHECK(world.Submit("one").submission().state() == S::STARTING);
  world.Ends("one", 3, first);
  CHECK(world.Get("one").state() == S::STARTING);
  world.Ends("one", 0);
  CHECK(world.Get("one").state() == S::SUCCEEDED);
}

SCENARIO("a request that comes again does not start what was deleted since") {
  SubmissionWorld world({.max_ended_submissions = 1});
  auto keyed = world.Submission("one");
  keyed.mutable_submit_entrypoint()->set_idempotency_key("key");
  keyed.mutable_submit_entrypoint()->mutable_entrypoint()->add_environ("PASSWORD=secret");
  CHECK(Is(world.Ask(world.tool, keyed), ErrorKind::kNone));
  CHECK(world.TakeStarts(world.node).size() == 1);
  world.Ends("one", 0);
  const auto comes_again = [&] {
    const proto::GcsReply reply = world.Ask(world.tool, keyed);
    CHECK(Is(reply, ErrorKind::kNone));
    CHECK(reply.submission().number() == 1);
    CHECK(reply.submission().entrypoint().environ().empty());
    CHECK(world.TakeStarts(world.node).empty());
    CHECK(Is(world.Delete("one"), ErrorKind::kNotFound));
    CHECK(world.List(10).submissions().empty());
  };
  WHEN("its user deletes it") {
    CHECK(Is(world.Delete("one"), ErrorKind::kNone));
    comes_again();
    THEN("not by a GCS that started again either") {
      world.Restart();
      world.Pass(100 * kMillisecond, {world.node});
      comes_again();
      CHECK(world.Submit("two").submission().number() == 2);
    }
    THEN("a request of somebody else has the id") {
      CHECK(world.Submit("one").submission().number() == 2);
      CHECK(world.TakeStarts(world.node).size() == 1);
      CHECK(Is(world.Ask(world.tool, keyed), ErrorKind::kActorNameTaken));
    }
    THEN("after an hour the key is forgotten as well") {
      world.clock.Advance(3'601 * kSecond);
      world.service().Tick();
      CHECK(world.Ask(world.tool, keyed).submission().number() == 2);
    }
  }
  WHEN("it is the oldest of too many") {
    world.clock.Advance(kMillisecond);
    world.Submit("two");
    CHECK(world.TakeStarts(world.node).size() == 1);
    world.Ends("two", 0);
    world.Pass(100 * kMillisecond, {world.node});
    CHECK(world.List(10).submissions_size() == 1);
    const proto::GcsReply reply = world.Ask(world.tool, keyed);
    CHECK(reply.submission().number() == 1);
    CHECK(world.TakeStarts(world.node).empty());
  }
}

SCENARIO("submissions are listed from the newest on, and forgotten from the first to end on") {
  SubmissionWorld world({.max_ended_submissions = 3});
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    world.Submit(id);
    world.clock.Advance(kMillisecond);
    if (std::string(id) != "a") world.Ends(id, 0);
  }
  world.Ends("a", 0);
  const proto::SubmissionList page = world.List(2);
  REQUIRE(page.submissions_size() == 2);
  CHECK(page.more());
  CHECK(page.submissions(0).entrypoint().submission_id() == "e");
  const proto::SubmissionList rest = world.List(10, page.submissions(1).number());
  CHECK(rest.submissions_size() == 3);
  CHECK_FALSE(rest.more());
  world.Pass(100 * kMillisecond, {world.node});
  CHECK(world.List(10).submissions_size() == 3);
  CHECK(world.Get("a").state() == S::SUCCEEDED);  // It was the last to end.
  CHECK(Is(world.Delete("b"), ErrorKind::kNotFound));
  CHECK(Is(world.Delete("a"), ErrorKind::kNone));
  CHECK(Is(world.Delete("a"), ErrorKind::kNotFound));
  world.Submit("new");
  CHECK(Is(world.Delete("new"), ErrorKind::kInvalidArgument));
  world.Restart();
  CHECK(world.List(10).submissions_size() == 3);
}

SCENARIO("a raylet hears which of the logs that it has are of nobody") {
  SubmissionWorld world;
  world.Submit("ran");
  world.Ends("ran", 0);
  world.Submit("waits", 1'000);
  REQUIRE(world.Get("waits").state() == S::PENDING);
  const NodeNumber other = world.AddNode();
  const auto forgotten = [&](NodeNumber node) {
    proto::GcsRequest request;
    for (const char* id : {"ran", "waits", "deleted"})
      request.mutable_forgotten_submissions()->add_submission_ids(id);
    const proto::GcsReply reply = world.Ask(RayletOf(node), request);
    const auto& ids = reply.forgotten_submissions().submission_ids();
    return std::vector<std::string>(ids.begin(), ids.end());
  };
  CHECK(forgotten(world.node) == std::vector<std::string>{"waits", "deleted"});
  CHECK(forgotten(other) == std::vector<std::string>{"ran", "waits", "deleted"});
  CHECK(Is(world.Delete("ran"), ErrorKind::kNone));
  CHECK(forgotten(world.node).size() == 3);
}

}  // namespace submission_forget_test
}  // namespace sheaf
