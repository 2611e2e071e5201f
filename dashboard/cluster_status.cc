// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/cluster_status.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/json.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

constexpr size_t kFailuresShown = 20;

using Usage = std::map<std::string, std::pair<int64_t, int64_t>>;  // Used, total.

void AddUsage(const proto::NodeRow& node, Usage& usage) {
  for (const auto& [name, amount] : node.total().amounts()) {
    const auto available = node.available().amounts().find(name);
    auto& [used, total] = usage[name];
    total += amount;
    used += amount - (available == node.available().amounts().end() ? 0 : available->second);
  }
}

std::string UsageJson(const Usage& usage) {
  JsonObject out;
  for (const auto& [name, amounts] : usage) {
    out.Add(name, JsonArray()
                      .Add(JsonAmount(name, amounts.first))
                      .Add(JsonAmount(name, amounts.second))
                      .Done());
  }
  return out.Done();
}

std::string AmountsJson(const proto::Resources& resources) {
  const std::map<std::string, int64_t> sorted(resources.amounts().begin(),
                                              resources.amounts().end());
  JsonObject out;
  for (const auto& [name, amount] : sorted) out.Add(name, JsonAmount(name, amount));
  return out.Done();
}

std::string Pair(const std::string& what, uint64_t count) {
  return JsonArray().Add(what).Add(JsonNumber(count)).Done();
}

std::string CountsJson(const std::map<std::string, uint64_t>& counts) {
  JsonObject out;
  for (const auto& [name, count] : counts) out.Add(name, JsonNumber(count));
  return out.Done();
}

std::string GroupJson(const proto::GroupRow& group) {
  std::map<std::string, uint64_t> shapes;
  for (const proto::Resources& bundle : group.bundles()) ++shapes[AmountsJson(bundle)];
  JsonArray bundles;
  for (const auto& [shape, count] : shapes) bundles.Add(Pair(shape, count));
  return JsonObject()
      .Add("strategy", JsonString(group.placement()))
      .Add("bundles", bundles.Done())
      .Done();
}

// Equal groups are one entry.
std::string GroupsJson(const proto::StateAnswer& demand) {
  std::map<std::string, uint64_t> groups;
  for (const proto::GroupRow& group : demand.groups()) ++groups[GroupJson(group)];
  JsonArray out;
  for (const auto& [group, count] : groups) out.Add(Pair(group, count));
  return out.Done();
}

std::string SelectorsJson(
    const google::protobuf::RepeatedPtrField<proto::LabelSelector>& selectors) {
  JsonArray all;
  for (const proto::LabelSelector& selector : selectors) {
    JsonArray terms;
    for (const proto::LabelTerm& term : selector.terms()) {
      JsonArray values;
      for (const std::string& value : term.values()) values.Add(JsonString(value));
      terms.Add(JsonObject()
                    .Add("key", JsonString(term.key()))
                    .Add("operator", term.negated() ? "\"not in\"" : "\"in\"")
                    .Add("values", values.Done())
                    .Done());
    }
    all.Add(terms.Done());
  }
  return all.Done();
}

struct Nodes {
  Usage usage;
  std::map<std::string, uint64_t> active, idle;  // By type.
  JsonObject usage_by_node, types, activities;
  std::vector<std::string> failed;
};

void AddNode(const proto::NodeRow& row, Nodes& nodes) {
  const std::string type = NodeType(row.labels());
  const std::string host = HostOfAddress(row.address());
  if (row.state() == "DEAD") {
    nodes.failed.push_back(JsonArray().Add(JsonString(host)).Add(JsonString(type)).Done());
    return;
  }
  Usage usage;
  AddUsage(row, usage);
  AddUsage(row, nodes.usage);
  JsonArray reasons;
  bool is_used = false;
  for (const auto& [name, amounts] : usage) {
    if (amounts.first <= 0) continue;
    is_used = true;
    reasons.Add(JsonString(absl::StrCat("Resource: ", name, " currently in use.")));
  }
  ++(is_used ? nodes.active : nodes.idle)[type];
  const std::string id = NodeIdText(row.node());
  nodes.usage_by_node.Add(id, UsageJson(usage));
  nodes.types.Add(id, JsonString(type));
  nodes.activities.Add(id, JsonArray().Add(JsonString(host)).Add(reasons.Done()).Done());
}

}  // namespace

std::string ClusterStatusJson(const proto::StateAnswer& answer, const proto::StateAnswer& demand) {
  Nodes nodes;
  for (const proto::NodeRow& row : answer.nodes()) AddNode(row, nodes);
  JsonArray failed, shapes;
  const size_t first =
      nodes.failed.size() - std::min(nodes.failed.size(), kFailuresShown);  // The last ones.
  for (size_t i = first; i < nodes.failed.size(); ++i) failed.Add(nodes.failed[i]);
  for (const proto::DemandRow& row : demand.demand()) {
    shapes.Add(Pair(AmountsJson(row.resources()), row.count()));
  }
  return JsonObject()
      .Add("loadMetricsReport", JsonObject()
                                    .Add("usage", UsageJson(nodes.usage))
                                    .Add("resourceDemand", shapes.Done())
                                    .Add("pgDemand", GroupsJson(demand))
                                    .Add("requestDemand", "[]")
                                    .Add("usageByNode", nodes.usage_by_node.Done())
                                    .Done())
      .Add("autoscalerReport", JsonObject()
                                   .Add("activeNodes", CountsJson(nodes.active))
                                   .Add("idleNodes", CountsJson(nodes.idle))
                                   .Add("pendingNodes", "[]")
                                   .Add("pendingLaunches", "{}")
                                   .Add("failedNodes", failed.Done())
                                   .Add("nodeTypeMapping", nodes.types.Done())
                                   .Add("nodeActivities", nodes.activities.Done())
                                   .Done())
      .Done();
}

std::string DemandJson(const proto::StateAnswer& demand) {
  JsonArray shapes, gangs, late;
  for (const proto::DemandRow& row : demand.demand()) {
    shapes.Add(JsonObject()
                   .Add("resources", AmountsJson(row.resources()))
                   .Add("selectors", SelectorsJson(row.selectors()))
                   .Add("count", JsonNumber(uint64_t{row.count()}))
                   .Add("infeasible", JsonBool(row.infeasible()))
                   .Add("words", JsonString(row.words()))
                   .Done());
  }
  for (const proto::GroupRow& group : demand.groups()) {
    JsonArray bundles;
    for (const proto::Resources& bundle : group.bundles()) bundles.Add(AmountsJson(bundle));
    gangs.Add(JsonObject()
                  .Add("placement_group_id", JsonString(group.group_id()))
                  .Add("strategy", JsonString(group.placement()))
                  .Add("bundles", bundles.Done())
                  .Add("selectors", SelectorsJson(group.selectors()))
                  .Add("infeasible", JsonBool(group.state() == "INFEASIBLE"))
                  .Done());
  }
  for (const uint32_t node : demand.late_nodes()) late.Add(JsonString(NodeIdText(node)));
  return JsonObject()
      .Add("shapes", shapes.Done())
      .Add("gangs", gangs.Done())
      .Add("truncated", JsonBool(demand.truncated()))
      .Add("late_nodes", late.Done())
      .Done();
}

}  // namespace sheaf::dashboard
