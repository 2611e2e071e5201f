// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "sheaf/context.h"

#include "api/coroutine_loop.h"
#include "api/failures.h"
#include "api/process.h"
#include "api/templates.h"
#include "api/worker_handler.h"
#include "base/resources.h"

namespace sheaf::inline v1 {
namespace {

constexpr Nanos kQueryTimeout = 10 * kSecond;

template <class Map>
std::map<std::string, double> Amounts(const Map& amounts) {
  std::map<std::string, double> out;
  for (const auto& [name, amount] : amounts) out[name] = static_cast<double>(amount) / kUnit;
  return out;
}

proto::StateAnswer Ask(proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  proto::StateAnswer answer = internal::ValueOrThrow(
      internal::TheRuntime().Query(std::move(query), MonotonicNow() + kQueryTimeout));
  if (!answer.error().empty()) throw SystemError(answer.error());
  return answer;
}

std::map<std::string, double> SumOf(std::map<std::string, double> NodeInfo::* amounts) {
  std::map<std::string, double> sum;
  for (const NodeInfo& node : Nodes()) {
    if (node.state != "ALIVE") continue;
    for (const auto& [name, amount] : node.*amounts) sum[name] += amount;
  }
  return sum;
}

}  // namespace

RuntimeContext Context() {
  Runtime& runtime = internal::TheRuntime();
  RuntimeContext context;
  context.is_worker = internal::WorkerHandler::Current() != nullptr;
  context.node = runtime.self().node;
  context.process = runtime.self().process;
  context.job = runtime.job();
  context.name_space = runtime.name_space();
  if (const Execution* execution = internal::CurrentExecution(); execution != nullptr) {
    context.task_id = execution->task().ToHex();
    if (!execution->actor().is_nil()) context.actor_id = execution->actor().ToHex();
    context.task_name = std::string(execution->name());
    context.attempt = execution->attempt();
  }
  const proto::LeaseSpec lease = runtime.current_lease();
  context.resources = Amounts(lease.resources().amounts());
  context.gpu_ids = runtime.gpu_ids();
  const PlacementGroupId group = internal::RunningGroup();
  if (!group.is_nil()) context.placement_group = group.ToHex();
  return context;
}

std::vector<NodeInfo> Nodes() {
  std::vector<NodeInfo> nodes;
  const proto::StateAnswer answer = Ask(proto::StateQuery::NODES);
  for (const proto::NodeRow& row : answer.nodes()) {
    NodeInfo node;
    node.number = row.node();
    node.state = row.state();
    node.host_name = row.host_name();
    node.address = row.address();
    node.total = Amounts(row.total().amounts());
    node.available = Amounts(row.available().amounts());
    node.labels = {row.labels().begin(), row.labels().end()};
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::map<std::string, double> ClusterResources() { return SumOf(&NodeInfo::total); }
std::map<std::string, double> AvailableResources() { return SumOf(&NodeInfo::available); }
std::string MetricsUrl() { return Ask(proto::StateQuery::STATUS).metrics_url(); }

}  // namespace sheaf::inline v1
