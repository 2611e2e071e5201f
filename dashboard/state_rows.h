// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From what nodes answer to the columns of Ray 2.60's listings. The names and values are those of
// sheaf.util.state where that has them; what Sheaf does not know is null, never missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dashboard/state_table.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// The answers that a listing is made of; those that its kind does not need are empty.
struct Answers {
  proto::StateAnswer rows;
  proto::StateAnswer nodes;    // For addresses.
  proto::StateAnswer workers;  // For pids.
  proto::StateAnswer jobs;     // For drivers.
};

// One kind of rows, by the name in its route.
struct StateKind {
  const char* name;
  proto::StateQuery::What what;
  bool wants_nodes;
  bool wants_workers;
  bool wants_jobs;
  StateTable (*table)(const Answers& answers);
};

// "actors", "cluster_events", "jobs", "nodes", "objects", "placement_groups", "tasks" or "workers"; nullptr: none.
const StateKind* FindStateKind(std::string_view name);
// Their names, in this order.
std::vector<std::string> StateKindNames();

// "10.0.0.1:6379" -> "10.0.0.1"; of a cluster of one, which has no address, 127.0.0.1.
std::string HostOfAddress(const std::string& address);
// The label ray.io/node-group of a node, else "node".
template <class Labels>
std::string NodeType(const Labels& labels) {
  const auto group = labels.find("ray.io/node-group");
  return group == labels.end() ? "node" : group->second;
}
// As sheaf.nodes() has it: 56 hexadecimal digits.
std::string NodeIdText(uint32_t node);
// The number of such an id. kInvalidArgument: it is none.
absl::StatusOr<uint32_t> NodeOfId(std::string_view text);

}  // namespace sheaf::dashboard
