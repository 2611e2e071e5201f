// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a look at a large cluster costs, while as many tasks as there are wait in it.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "tests/sim/cluster.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kLongestLook = 10 * kSecond;
constexpr int kDigests = 4;  // One a second.

proto::StateQuery QueryFor(proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  return query;
}

uint64_t RowsOf(const proto::StateAnswer& answer) {
  return static_cast<uint64_t>(answer.functions_size() + answer.tasks_size() +
                               answer.counts_size() + answer.digests_size() + answer.demand_size());
}

}  // namespace

proto::StateAnswer Cluster::AskState(const std::string& what, const proto::StateQuery& query,
                                     RunResult* result) {
  Process* const asker = AnyDriver();
  SHEAF_CHECK(asker != nullptr, "a driver has tasks that wait");
  const Nanos begin = world_.now();
  const uint64_t bytes = between_.state_bytes();
  Look look{.what = what};
  proto::StateAnswer told;
  bool done = false;
  asker->on_state_answer = [&](const proto::StateAnswer& answer) {
    look.took = world_.now() - begin;
    told = answer;
    done = true;
  };
  asker->AskState(query);
  asker->EndTurn();
  RunUntil(kLongestLook, [&] { return done; });
  asker->on_state_answer = nullptr;
  look.bytes = between_.state_bytes() - bytes;
  look.rows = RowsOf(told);
  look.is_of_nodes = query.what() == proto::StateQuery::DIGEST;
  look.lanes = uint64_t{query.lanes()} * static_cast<uint64_t>(options_.nodes);
  look.late_nodes = static_cast<uint64_t>(told.late_nodes_size());
  result->looks.push_back(std::move(look));
  return told;
}

void Cluster::LookAround(RunResult* result) {
  Nanos worked = world_.now() - kSecond;
  const auto work = [&] { busy_->Work(std::exchange(worked, world_.now()), world_.now()); };
  work();
  RunUntil(kSecond, [] { return false; });  // All tasks are made, and few have run.
  AskState("functions, counted", QueryFor(proto::StateQuery::FUNCTIONS), result);
  proto::StateQuery objects = QueryFor(proto::StateQuery::OBJECTS);
  objects.set_counts_only(true);
  AskState("objects, counted", objects, result);
  AskState("demand, by shape", QueryFor(proto::StateQuery::DEMAND), result);
  proto::StateQuery tasks = QueryFor(proto::StateQuery::TASKS);
  tasks.set_limit(100);
  AskState("the first 100 tasks", tasks, result);
  proto::StateQuery digest = QueryFor(proto::StateQuery::DIGEST);
  digest.set_lanes(std::max(1u, 200u / static_cast<uint32_t>(options_.nodes)));
  for (int i = 0; i < kDigests; ++i) {
    const Nanos next = world_.now() + kSecond;
    work();
    const proto::StateAnswer answer =
        AskState(i == 0 ? "digests, the first" : "digests, each second", digest, result);
    digest.clear_cursors();
    for (const proto::NodeDigest& node : answer.digests()) {
      proto::DigestCursor& cursor = *digest.add_cursors();
      cursor = node.next();
      cursor.set_node(node.node());
    }
    RunUntil(next - world_.now(), [] { return false; });
  }
}

}  // namespace sheaf::sim
