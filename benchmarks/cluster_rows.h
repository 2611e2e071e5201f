// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What programs see of a cluster: several nodes on this machine, each with a raylet of its own and
// links over loopback to the others. The benchmark is driver and workers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bench {

// What a call to another node passes, there and back.
inline constexpr const char* kHops[] = {"the driver", "its raylet", "the other raylet",
                                        "the worker"};

class ClusterNodes {
 public:
  // Starts `nodes` of them and joins the first one. Ends the program with the reason if one does
  // not start. `tls_directory`: their certificates; empty: their links are not encrypted.
  ClusterNodes(int argc, char** argv, int nodes, const std::string& tls_directory);
  ~ClusterNodes();

  // Each measures once. Rates are per second.
  double CallsOneByOne(int calls);  // Of an actor on the second node: the next after each answer.
  double CallsInFlight(int calls, int in_flight);  // Of the same actor.
  // Microseconds of CPU that `hop` took for each of the calls of the last CallsInFlight.
  double cpu_per_call(const std::string& hop) const { return cpu_per_call_.at(hop); }
  double TasksInFlight(int tasks, int in_flight);  // On the second node.
  // Seconds until an object of `bytes` that lies on the first node has been read on the next
  // `readers` ones.
  double Broadcast(size_t bytes, int readers);
  // Values of `bytes` that a process of the second node has put there, taken by one get.
  double GetMany(size_t count, size_t bytes);
  // Actors made on the first three nodes, until each has answered a call.
  double Actors(int count);

 private:
  struct Node {
    std::string session;
    pid_t pid = 0;
    uint32_t number = 0;
  };
  struct Callee;

  void Start(const std::string& flags);

  std::string directory_;
  std::vector<Node> nodes_;
  std::string head_address_;
  std::unique_ptr<Callee> callee_;
  std::map<std::string, double> cpu_per_call_;
};

// Whether this process was started as a worker; then it does not return.
void BecomeWorker(int argc, char** argv);

}  // namespace bench
