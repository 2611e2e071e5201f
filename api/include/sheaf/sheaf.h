// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Sheaf for C++: remote functions, actors and shared immutable objects.
//
//   #include <sheaf/sheaf.h>
//   int Square(int x) { return x * x; }
//   SHEAF_REMOTE(Square);
//   int main(int argc, char** argv) {
//     sheaf::Init(argc, argv);
//     std::cout << sheaf::Get(sheaf::Task(Square).Remote(3)) << "\n";
//   }
// The same program is driver and worker: Sheaf starts it again, with the same arguments, for its
// workers, and there Init runs tasks and does not return. What main does before Init happens in
// every worker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "sheaf/actor.h"
#include "sheaf/array.h"
#include "sheaf/context.h"
#include "sheaf/coroutine.h"
#include "sheaf/errors.h"
#include "sheaf/generator.h"
#include "sheaf/object_ref.h"
#include "sheaf/options.h"
#include "sheaf/placement.h"
#include "sheaf/python.h"
#include "sheaf/serialize.h"
#include "sheaf/task.h"

namespace sheaf::inline v1 {

// How a program joins or starts a node. Fields that are not set have what stands here.
struct InitOptions {
  // A session directory to join (`sheaf start` prints it), or "auto" for the newest of this user.
  // Empty: SHEAF_ADDRESS, and when that is not set a node of this program's own, which ends with
  // it.
  std::string address{};
  std::string name_space{};  // Named actors are found within one. Empty: one of its own.
  std::map<std::string, std::string> environment{};  // Variables of all workers of this job.
  std::string python = "python3";  // Of PyTask and PyActor: a name in PATH, or a path.
  bool log_to_driver = true;  // What workers print appears here, with "(name pid=...)" before it.
  double cpus = 0;            // Of a node of its own, as all below; 0: what the machine has.
  double gpus = -1;           // Below 0: what the machine has.
  std::map<std::string, double> resources{};    // Names of your own.
  std::map<std::string, std::string> labels{};  // For Strategy::Labels.
  int64_t memory_bytes = 0;  // For tasks that ask for "memory"; 0: 70 % of what the machine has.
  int64_t store_bytes = 0;   // Of shared memory for objects; 0: 30 % of what the machine has.
  int metrics_port = 0;      // On loopback; 0: a free one.
};

// Joins a node, or starts one. In a worker it runs tasks and does not return. Call it once, early
// in main, before threads are started. Throws NotFoundError (no node is there, or no program
// `sheaf`), SystemError (the node is of another version, or ended before it was ready),
// InvalidArgumentError (two functions have one name).
SHEAF_API void Init(int argc, char** argv, const InitOptions& options = {});
SHEAF_API void Init(const InitOptions& options = {});
// Leaves the node, and ends it if Init started it. The end of main does the same. No other thread
// may use Sheaf meanwhile; references and Arrays may outlive it. Init may follow.
SHEAF_API void Shutdown();
// Whether this process has joined a node. Any thread may ask.
SHEAF_API bool IsInitialized();

}  // namespace sheaf::inline v1
