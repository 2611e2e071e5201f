// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a program can ask about itself and about the cluster.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sheaf/internal/export.h"

namespace sheaf::inline v1 {

// Where this code runs. Ids are 32 hexadecimal digits, as the command line takes them.
struct RuntimeContext {
  bool is_worker = false;
  uint32_t node = 0;     // Number of the node.
  uint32_t process = 0;  // Number of the process within the node.
  uint32_t job = 0;
  std::string name_space;                   // Of named actors.
  std::string task_id;                      // Empty outside of tasks.
  std::string actor_id;                     // Empty outside of actors.
  std::string task_name;                    // "app::Square"; empty outside of tasks.
  uint32_t attempt = 0;                     // How often the task was tried before.
  std::map<std::string, double> resources;  // Of the task; empty in drivers.
  std::vector<uint32_t> gpu_ids;
  std::string placement_group;  // Its id, where the task or actor runs in one.
};
// What holds for the calling thread.
SHEAF_API RuntimeContext Context();

// A node of the cluster, as its head knows it.
struct NodeInfo {
  uint32_t number = 0;                  // As Strategy::Node takes it.
  std::string state;                    // "ALIVE", "DRAINING", "DEAD".
  std::string host_name;                // Of its machine.
  std::string address;                  // HOST:PORT, where other nodes reach it; empty: nowhere.
  std::map<std::string, double> total;  // Resources: CPUs, GPUs, bytes of "memory", your own.
  std::map<std::string, double> available;    // Of these, what nothing uses.
  std::map<std::string, std::string> labels;  // As the node was started with.
};
// As the cluster last reported; any thread may ask. These throw TimeoutError when the node does not
// answer within 10 s.
SHEAF_API std::vector<NodeInfo> Nodes();
SHEAF_API std::map<std::string, double> ClusterResources();    // Of all nodes that are alive.
SHEAF_API std::map<std::string, double> AvailableResources();  // Not in use there.
SHEAF_API std::string MetricsUrl();  // Of this node; empty: there is none.

}  // namespace sheaf::inline v1
