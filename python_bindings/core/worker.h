// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Python side of a worker process: finds the function of a call, runs it, sends its result.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

// What `ps` and /proc/PID/cmdline show of this process.
// Writes over the arguments that the process was started with, whose memory is all that there is for
// it. One thread at a time.
class ProcessTitle {
 public:
  ProcessTitle();
  // "ray::NAME", cut where the memory ends. Nothing happens where the kernel does not say where the
  // memory is.
  void Show(std::string_view name);

 private:
  char* begin_ = nullptr;
  size_t size_ = 0;
  std::string shown_;
};

// One per worker process, for ever. Execute comes without the GIL, on the main thread or on threads
// of the actor's groups.
class PythonHandler final : public TaskHandler {
 public:
  void Execute(std::shared_ptr<Execution> execution) override;
  void Cancel(TaskId task) override;
  void Leave() override;
  bool has_event_loop() const override { return true; }
  bool ends_waits_of_methods() const override { return false; }

  // Of an actor with async methods, on its event loop's thread, with the GIL: the calls that shall
  // start now, a list of (execution, function, actor, arguments, what few calls have or None; see
  // sheaf._worker.async_actor). While there are none it waits, for `timeout` in seconds
  // (None: for ever) or until the loop has something else to do. None: the node has ended. nullptr:
  // an exception is set.
  PyObject* TakeCalls(PyObject* timeout);

 private:
  // What sheaf._worker.functions.load_function gave: a callable, or the name of a method.
  // Nothing: an exception is set.
  Owned Find(const proto::TaskTemplate& spec);
  Owned Load(const proto::TaskTemplate& spec);
  void Run(const std::shared_ptr<Execution>& execution);
  PyObject* Prepare(const std::shared_ptr<Execution>& execution);
  void ShowLease(const proto::LeaseSpec& lease);
  void ExitActor();
  void EndInstance();

  std::atomic<bool> async_{false};  // The actor's calls run on the event loop's thread.
  std::atomic<bool> is_actor_{false};

  // Guarded by the GIL.
  struct Loaded {
    Owned function;
    size_t bytes = 0;  // Of its pickle.
    std::list<std::string>::iterator place;
  };
  absl::flat_hash_map<std::string, Loaded> functions_;
  std::list<std::string> by_use_;  // Their keys, latest first.
  size_t loaded_bytes_ = 0;
  std::string last_key_;
  Owned last_;
  Owned instance_;               // The actor.
  const char* ended_ = nullptr;  // Why no further call runs.
  int64_t threads_ = 1;          // That libraries are told to start.
  ProcessTitle title_;           // Of the call that runs, or ran last; of async actors the class.
};

}  // namespace sheaf::python
