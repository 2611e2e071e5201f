// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Python side of a worker process: finds the function of a call, runs it, sends its result.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "python_bindings/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

// One per worker process. Execute comes without the GIL, on the main thread or on threads of the actor's groups.
class PythonHandler final : public TaskHandler {
 public:
  void Execute(std::shared_ptr<Execution> execution) override;
  void Cancel(TaskId task) override;

 private:
  // What sheaf.worker_functions.load gave: a callable, or the name of a method.
  PyObject* Find(const proto::TaskTemplate& spec);
  void Run(std::shared_ptr<Execution> execution);
  void RunCoroutine(PyObject* function, std::shared_ptr<Execution> execution);
  void ShowGpus(const proto::TaskTemplate& spec);
  void ExitActor(std::shared_ptr<Execution> execution);

  // Guarded by the GIL.
  absl::flat_hash_map<std::string, Owned> functions_;
  std::string last_key_;
  PyObject* last_ = nullptr;
  Owned instance_;         // The actor.
  bool async_ = false;     // Its calls run on the event loop's thread.
  bool exited_ = false;    // exit_actor was called: no further call runs.
};

}  // namespace sheaf::python
