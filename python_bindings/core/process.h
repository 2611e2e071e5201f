// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// This process's place in a cluster as Python sees it: the runtime between init and shutdown, and
// how its failures become exceptions. Everything here is called with the GIL held, which is also
// what guards the state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

inline constexpr size_t kSmallValueBytes = 64 * 1024;   // Up to here values travel in frames.
inline constexpr Nanos kClusterTimeout = 30 * kSecond;  // For answers of the node.

// nullptr: init was not called, or shutdown was. Valid while the GIL is held, or a RuntimeInUse
// exists.
Runtime* CurrentRuntime();
// The same, after sheaf.init() where a driver has not called it. nullptr: an exception is set.
Runtime* RequireRuntime();
// The same for a call about `reference`, whatever that is: an ObjectRef of a session that has ended,
// or a list that begins with one, starts no node.
Runtime* RequireRuntimeOf(PyObject* reference);
// The same for a call that runs user code, to pickle what it is given, before it uses the runtime:
// that code, or another thread meanwhile, may have ended it.
class CallRuntime {
 public:
  CallRuntime();
  // nullptr: an exception is set. To be asked again after user code, or after the GIL was free.
  Runtime* get() const;

 private:
  Runtime* const runtime_;
  const uint64_t generation_;
};
// The interpreter ends: from here on nothing joins a cluster, not even by default.
void LeaveForGood();
// Whether this process joins none now, for that reason or because some thread is leaving one; then
// the exception that says so is set.
bool RefusesToJoin();
// A thread joins a cluster while one exists: each other one that would join waits, and then finds
// what the first has joined. A thread may have several, one inside the other.
class JoinTurn {
 public:
  JoinTurn();
  ~JoinTurn();
  JoinTurn(const JoinTurn&) = delete;
  JoinTurn& operator=(const JoinTurn&) = delete;
  // False: a signal handler has raised while it waited.
  bool ok() const { return joins_; }

 private:
  bool joins_ = false;
};
// A thread leaves the cluster while one exists. It waits for another that does so already: is_first
// is false then, and there is nothing left to do.
class Leaving {
 public:
  Leaving();
  ~Leaving();
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  bool is_first() const { return first_; }

 private:
  const bool first_;
};
// Whether this process was forked, by user code, from one that had a runtime. It has none and gets
// none: what it shares with its parent is its parent's.
bool IsForked();
// Sets the RuntimeError that says so.
void RaiseForked();
// Counts runtimes, from 1: templates of an earlier one mean nothing to the next. 0: there is none
// now.
uint64_t RuntimeGeneration();
// The same, and another number for each placement group that this process hands down to the calls
// it makes: a template that inherits the group of one task means nothing to the next task.
uint64_t CallGeneration();
// The group that the task, or the actor, of this process hands down; empty: none.
void SetInheritedGroup(const std::string& group);
// Where the two numbers stand, for who compares often.
const uint64_t& RuntimeGenerationCell();
const uint64_t& CallGenerationCell();
bool IsWorker();

// Keeps the runtime alive while the GIL is free; made and ended with the GIL held, on one thread.
class RuntimeInUse {
 public:
  RuntimeInUse();
  ~RuntimeInUse();
  RuntimeInUse(const RuntimeInUse&) = delete;
  RuntimeInUse& operator=(const RuntimeInUse&) = delete;
};

// A driver is about to join again: waits no longer end because an earlier runtime did.
void BeginRuntime();
// From here on the process's runtime. `worker`: it runs tasks.
void SetRuntime(std::unique_ptr<Runtime> runtime, bool worker);
// Ends it: waiting threads leave with an error first. Releases the GIL meanwhile. Does nothing when
// there is none. From a signal handler that runs inside a call of it: that call ends when the
// handler has returned.
void EndRuntime();
// In a forked child: this process has none, and the parent's is left alone.
void ForgetRuntime();

// For RuntimeOptions::interrupted of drivers: shutdown was called, or a signal handler has raised
// on this thread.
bool DriverInterrupted();
// The same for workers, whose main thread runs Python only while it executes a call.
bool WorkerInterrupted();
// Workers: the calling thread executes a call from here on, or no longer.
void SetRunsUserCode(bool runs);
// Remembers the main thread, the only one on which signal handlers run; it may be another one.
void RememberMainThread();
// Whether this thread runs an event loop of asyncio.
bool RunsEventLoop();
// Sends it SIGINT, unless the call that it runs has taken one.
void InterruptMainThread();
// On the main thread: the call that begins is not to be interrupted before ExpectInterrupt, and
// from then on once.
void HoldInterrupt();
void ExpectInterrupt();
// In the handler of SIGINT, for the call that shall end: false, it was interrupted before.
bool TakeInterrupt();

// While the program leaves the cluster at its end, Ctrl-C ends it by SIGINT as it would have, but
// when the interpreter is done, and without words: no user code waits for it any more. Between
// these two, on the main thread, where the handler is Python's own.
void HoldInterrupts();
void RestoreInterrupts();

// Sets the Python exception for a status; `resource`: what kResourceExhausted means here. Returns
// nullptr. When a signal handler has raised, its exception stays. On a thread that the end of the
// interpreter has met it is SystemExit, which ends the thread without words.
PyObject* RaiseStatus(const absl::Status& status, ErrorKind resource);
// Sets the Python exception for a failed object. Returns nullptr.
PyObject* RaiseError(const Error& error);

// A function of a module of this package, looked up once: `module` is "sheaf.exceptions". nullptr:
// an exception is set.
class PythonFunction {
 public:
  constexpr PythonFunction(const char* module, const char* name) : module_(module), name_(name) {}
  PyObject* get();
  // Calls it with `arguments`, borrowed. A new reference, or nullptr.
  template <class... Arguments>
  PyObject* operator()(Arguments... arguments) {
    PyObject* const function = get();
    if (function == nullptr) return nullptr;
    PyObject* const list[] = {nullptr, arguments...};
    return UnlessPythonEnds([&] {
      return PyObject_Vectorcall(function, list + 1,
                                 sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    });
  }

 private:
  const char* const module_;
  const char* const name_;
  PyObject* function_ = nullptr;
};

// Seconds (None: for ever) as a deadline. False: an exception is set.
bool DeadlineFrom(PyObject* seconds, Nanos* deadline);

}  // namespace sheaf::python
