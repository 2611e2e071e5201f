// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "api/templates.h"

#include <catch2/catch.hpp>
#include <stdexcept>

#include "api/registry.h"
#include "base/environment.h"
#include "sheaf/placement.h"
#include "sheaf/task.h"

namespace {

using namespace sheaf::internal;
namespace proto = sheaf::proto;

proto::TaskTemplate Build(FunctionRecord::Kind kind, const sheaf::Options& options,
                          uint32_t results = 1) {
  FunctionRecord record;
  record.kind = kind;
  record.key = "app::F#FvvE";
  record.name = "app::F";
  record.group = kind == FunctionRecord::Kind::kMethod ? "io" : "";
  return BuildTemplate(record, options, results);
}
constexpr auto kTask = FunctionRecord::Kind::kFunction;
constexpr auto kActor = FunctionRecord::Kind::kConstructor;
constexpr auto kMethod = FunctionRecord::Kind::kMethod;

TEST_CASE("a task by default takes one CPU and is tried three times again") {
  const proto::TaskTemplate spec = Build(kTask, {});
  CHECK(spec.kind() == proto::TaskTemplate::TASK);
  CHECK(spec.function() == "app::F#FvvE");
  CHECK(spec.name() == "app::F");
  CHECK(spec.max_retries() == 3);
  CHECK(spec.num_returns() == 1);
  CHECK(spec.lease().resources().amounts().at("CPU") == 10'000);
  CHECK_FALSE(spec.lease().has_running());
  CHECK(spec.lease().environment().empty());
}

TEST_CASE("resources are in ten-thousandths, and what cannot be is refused") {
  sheaf::Options options;
  options.resources = {{"CPU", 0.5}, {"GPU", 1}, {"memory", 1 << 20}, {"zero", 0}};
  const proto::TaskTemplate spec = Build(kTask, options);
  CHECK(spec.lease().resources().amounts().at("CPU") == 5'000);
  CHECK(spec.lease().resources().amounts().at("memory") == int64_t{10'000} << 20);
  CHECK(spec.lease().resources().amounts().size() == 3);
  options.resources = {{"GPU", 1.5}};
  CHECK_THROWS_AS(Build(kTask, options), sheaf::InvalidArgumentError);
  options.resources = {{"CPU", -1}};
  CHECK_THROWS_AS(Build(kTask, options), sheaf::InvalidArgumentError);
}

TEST_CASE("no CPUs asked for means none") {
  sheaf::Options options;
  options.resources = {{"CPU", 0}};
  CHECK(Build(kTask, options).lease().resources().amounts().empty());
}

TEST_CASE("an actor needs a CPU to be placed, and none to run, unless it asks") {
  proto::TaskTemplate spec = Build(kActor, {});
  CHECK(spec.lease().resources().amounts().at("CPU") == 10'000);
  REQUIRE(spec.lease().has_running());
  CHECK(spec.lease().running().amounts().empty());
  CHECK(spec.lease().actor());
  sheaf::Options options;
  options.resources = {{"CPU", 2}};
  CHECK_FALSE(Build(kActor, options).lease().has_running());
  options.resources = {{"GPU", 1}};
  CHECK(Build(kActor, options).lease().running().amounts().at("GPU") == 10'000);
}

TEST_CASE("an actor that must be found has a name") {
  sheaf::Options options;
  options.detached = true;
  CHECK_THROWS_WITH(Build(kActor, options), Catch::Contains("needs a Name"));
  options.name = "x";
  options.max_restarts = -1;
  options.concurrency_groups = {{"io", 2}};
  const proto::ActorOptions actor = Build(kActor, options).actor();
  CHECK(actor.name() == "x");
  CHECK(actor.detached());
  CHECK(actor.max_restarts() == -1);
  CHECK(actor.groups(0).max_concurrency() == 2);
}

TEST_CASE("a method runs in its own group, or in the one that the call names") {
  CHECK(Build(kMethod, {}).concurrency_group() == "io");
  sheaf::Options options;
  options.concurrency_group = "fast";
  CHECK(Build(kMethod, options).concurrency_group() == "fast");
}

TEST_CASE("strategies, labels and variables arrive") {
  sheaf::Options options;
  options.strategy =
      sheaf::Strategy::Node(7, true).Labels({{{"zone", {"a", "b"}}}, {{"disk", {"hdd"}, true}}});
  options.environment = {{"THREADS", "1"}};
  const proto::LeaseSpec lease = Build(kTask, options).lease();
  CHECK(lease.strategy().kind() == proto::Strategy::NODE_AFFINITY);
  CHECK(lease.strategy().node() == 7);
  CHECK(lease.strategy().soft());
  CHECK(lease.strategy().selectors(0).terms(0).values(1) == "b");
  CHECK(lease.strategy().selectors(1).terms(0).negated());
  CHECK(sheaf::DecodeEnvironment(lease.environment()).value().variables.at("THREADS") == "1");
  options.environment = {{"1BAD", "x"}};
  CHECK_THROWS_AS(Build(kTask, options), sheaf::InvalidArgumentError);
}

TEST_CASE("exceptions to retry on travel as the name of a rule that every process knows") {
  sheaf::TaskCaller<int, int> caller(nullptr);
  caller.RetryOn<std::out_of_range, std::bad_alloc>();
  const proto::TaskTemplate spec = Build(kTask, *caller.options());
  CHECK(spec.retry_exceptions());
  const RetryRule* rule = FindRetryRule(sheaf::Deserialize<TemplateExtra>(spec.extra()).retry_rule);
  REQUIRE(rule != nullptr);
  CHECK(rule->matches(std::make_exception_ptr(std::out_of_range("x"))));
  CHECK(rule->matches(std::make_exception_ptr(std::bad_alloc())));
  CHECK_FALSE(rule->matches(std::make_exception_ptr(std::runtime_error("x"))));
  CHECK_FALSE(rule->matches(std::make_exception_ptr(1)));
}

// As a worker does, whose tasks are in placement groups or not, one after the other.
TEST_CASE("what is submitted without a strategy inherits the group that its task passes on") {
  proto::Strategy passes_on, keeps;
  passes_on.set_kind(proto::Strategy::PLACEMENT_GROUP);
  passes_on.set_group_id(std::string(16, 'g'));
  passes_on.set_bundle(1);
  keeps = passes_on;
  passes_on.set_capture_children(true);

  SetRunningStrategy(keeps);
  CHECK(RunningGroup().Binary() == keeps.group_id());
  CHECK(Build(kTask, {}).lease().strategy().group_id().empty());
  SetRunningStrategy(passes_on);
  for (const auto kind : {kTask, kActor}) {
    const proto::TaskTemplate spec = Build(kind, {});
    const proto::Strategy& strategy = spec.lease().strategy();
    CHECK(strategy.kind() == proto::Strategy::PLACEMENT_GROUP);
    CHECK(strategy.group_id() == passes_on.group_id());
    CHECK(strategy.bundle() == -1);
    CHECK(strategy.capture_children());
  }
  sheaf::Options own;
  own.strategy = sheaf::Strategy::Spread();
  CHECK(Build(kTask, own).lease().strategy().kind() == proto::Strategy::SPREAD);
  CHECK(Build(kTask, own).lease().strategy().group_id().empty());
  SetRunningStrategy({});
  CHECK(RunningGroup().is_nil());
  CHECK(Build(kTask, {}).lease().strategy().group_id().empty());
}

}  // namespace
