// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/process.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "python_bindings/core/reference.h"

namespace sheaf::python {
namespace {

constexpr Nanos kLeaveTimeout = 5 * kSecond;  // Of threads that wait when shutdown is called.

Runtime* current = nullptr;  // Guarded by the GIL, as the next three.
uint64_t generation = 0;
uint64_t generations_made = 0;
uint64_t call_generation = 0;   // `generation`, and above it the number of the inherited group.
uint64_t inherited_number = 0;  // 0: none is inherited.
uint64_t numbers_given = 0;
constexpr int kGroupShift = 32;
constexpr size_t kGroupsRemembered = 1024;  // One that is forgotten gets a new number.
int users = 0;
thread_local int users_here = 0;  // Of this thread.
bool is_worker = false;
bool forked = false;
bool left_for_good = false;
bool leaving = false;  // A thread is between the beginning and the end of a shutdown,
pthread_t leaver;      // this one.
int joining = 0;       // JoinTurns of one thread, and
pthread_t joiner;      // which.
std::atomic<bool> ending{false};
pthread_t main_thread;
thread_local bool runs_user_code = false;
std::atomic<bool> interrupt_taken{false};  // By the call that the main thread runs.

PythonFunction make_error("sheaf.exceptions", "from_error");
PythonFunction make_status_error("sheaf.exceptions", "from_status");
PythonFunction find_main_thread("threading", "main_thread");
PythonFunction init_by_default("sheaf.lifecycle", "init_by_default");

std::map<std::string, uint64_t>& GroupNumbers() {
  static std::map<std::string, uint64_t>& numbers = *new std::map<std::string, uint64_t>;
  return numbers;
}

void SetGeneration(uint64_t number) {
  generation = number;
  call_generation = number == 0 ? 0 : number | inherited_number << kGroupShift;
}

bool OnMainThread() { return pthread_equal(pthread_self(), main_thread) != 0; }

bool SignalRaised() {
  if (!OnMainThread()) return false;
  const WithGil gil;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

}  // namespace

Runtime* CurrentRuntime() { return current; }

Runtime* RequireRuntime() {
  if (current != nullptr) [[likely]]
    return current;
  if (forked) {
    RaiseForked();
    return nullptr;
  }
  const JoinTurn turn;  // Else each thread that calls without init would start a node.
  if (!turn.ok()) return nullptr;
  if (current != nullptr) return current;
  if (RefusesToJoin()) return nullptr;
  const Owned done = Owned::Steal(init_by_default());
  if (!done) return nullptr;
  if (current == nullptr) PyErr_SetString(PyExc_RuntimeError, "sheaf.init() has not joined a node");
  return current;
}

Runtime* RequireRuntimeOf(PyObject* reference) {
  if (current == nullptr && PyList_Check(reference) != 0 && PyList_Size(reference) > 0)
    reference = PyList_GetItem(reference, 0);
  if (current != nullptr || forked || !IsReference(reference)) return RequireRuntime();
  if (!RefusesToJoin()) IsCurrent(reference);
  return nullptr;
}

CallRuntime::CallRuntime() : runtime_(RequireRuntime()), generation_(generation) {}

Runtime* CallRuntime::get() const {
  if (generation_ == generation) [[likely]]
    return runtime_;
  if (runtime_ != nullptr)
    RaiseStatus(absl::InternalError("sheaf.shutdown() was called meanwhile"), ErrorKind::kSystem);
  return nullptr;
}

void LeaveForGood() { left_for_good = true; }

bool RefusesToJoin() {
  // Looked at once: making the exception runs Python, and other threads meanwhile.
  const char* const why =
      left_for_good ? "this program is ending: it has left the cluster, and joins none any more"
      : leaving     ? "sheaf.shutdown() was called meanwhile"
                    : nullptr;
  if (why != nullptr) RaiseStatus(absl::InternalError(why), ErrorKind::kSystem);
  return why != nullptr;
}

JoinTurn::JoinTurn() {
  while (joining != 0 && pthread_equal(joiner, pthread_self()) == 0) {
    {
      const WithoutGil free;
      poll(nullptr, 0, 1);
    }
    if (OnMainThread() && PyErr_CheckSignals() != 0) return;
  }
  ++joining;
  joiner = pthread_self();
  joins_ = true;
}

JoinTurn::~JoinTurn() {
  if (joins_ && joining > 0) --joining;  // 0: in a forked child.
}

Leaving::Leaving() : first_(!leaving) {
  // A signal handler that interrupts a shutdown would wait for what it has interrupted.
  while (!first_ && leaving && pthread_equal(leaver, pthread_self()) == 0) {
    const WithoutGil free;
    poll(nullptr, 0, 1);
  }
  if (!first_) return;
  leaving = true;
  leaver = pthread_self();
}

Leaving::~Leaving() {
  if (first_) leaving = false;
}

uint64_t RuntimeGeneration() { return generation; }
uint64_t CallGeneration() { return call_generation; }
const uint64_t& RuntimeGenerationCell() { return generation; }
const uint64_t& CallGenerationCell() { return call_generation; }

void SetInheritedGroup(const std::string& group) {
  inherited_number = 0;
  if (!group.empty()) {
    std::map<std::string, uint64_t>& numbers = GroupNumbers();
    if (numbers.size() >= kGroupsRemembered && !numbers.contains(group)) numbers.clear();
    uint64_t& number = numbers[group];
    if (number == 0) number = ++numbers_given;
    inherited_number = number;
  }
  SetGeneration(generation);
}

bool IsWorker() { return is_worker; }

RuntimeInUse::RuntimeInUse() { ++users, ++users_here; }
RuntimeInUse::~RuntimeInUse() { --users, --users_here; }

void SetRuntime(std::unique_ptr<Runtime> runtime, bool worker) {
  current = runtime.release();
  SetGeneration(++generations_made);
  is_worker = worker;
  ending = false;
}

void BeginRuntime() { ending = false; }

void EndRuntime() {
  if (current == nullptr) return;
  if (users_here == 0) {
    const WithoutGil free;
    current->AwaitOutput();
  }
  std::unique_ptr<Runtime> runtime(std::exchange(current, nullptr));
  SetGeneration(0);
  ending = true;
  // Calls that wait ask DriverInterrupted each 100 ms and leave.
  const Nanos deadline = MonotonicNow() + kLeaveTimeout;
  // Ctrl-C does not hurry it, and comes afterwards.
  while (users > users_here && MonotonicNow() < deadline) {
    const WithoutGil free;
    poll(nullptr, 0, 1);
  }
  bool left = users == 0;
  {
    const WithoutGil free;
    // What this thread itself is in, below a signal handler, it leaves only afterwards.
    left = runtime->Stop(users_here == 0 ? kLeaveTimeout : 0) && left;
    if (left) runtime.reset();
  }
  if (left) return;
  // Some thread is in it still, in a callback that does not return, perhaps: it stays behind.
  static_cast<void>(runtime.release());
}

void ForgetRuntime() {
  forked |= current != nullptr || leaving || joining != 0;
  current = nullptr;
  leaving = false;  // The threads that were at it are the parent's.
  joining = users = users_here = 0;
  SetGeneration(0);
}

bool IsForked() { return forked; }

void RaiseForked() {
  PyErr_SetString(
      PyExc_RuntimeError,
      "this process was forked from a driver or worker of Sheaf and has no place in the "
      "cluster: only its parent may make calls. Start it with subprocess, or with "
      "multiprocessing's 'spawn', and call sheaf.init() there");
}

bool DriverInterrupted() { return ending.load(std::memory_order_relaxed) || SignalRaised(); }

bool WorkerInterrupted() { return runs_user_code && SignalRaised(); }
void SetRunsUserCode(bool runs) { runs_user_code = runs; }

void RememberMainThread() {
  main_thread = pthread_self();
  if (syscall(SYS_gettid) == getpid()) return;
  const Owned thread = Owned::Steal(find_main_thread());
  const Owned number =
      Owned::Steal(thread ? PyObject_GetAttrString(thread.get(), "ident") : nullptr);
  if (number) main_thread = PyLong_AsUnsignedLong(number.get());
  PyErr_Clear();
}
bool RunsEventLoop() {
  static PyObject* const name = PyUnicode_InternFromString("asyncio.events");
  const Owned module = Owned::Steal(PyImport_GetModule(name));  // nullptr: nobody imported it.
  const Owned loop = Owned::Steal(
      module ? PyObject_CallMethod(module.get(), "_get_running_loop", nullptr) : nullptr);
  if (!loop) PyErr_Clear();
  return loop && loop.get() != Py_None;
}
void InterruptMainThread() {
  if (!interrupt_taken) pthread_kill(main_thread, SIGINT);
}
void HoldInterrupt() {
  if (OnMainThread()) interrupt_taken.store(true, std::memory_order_relaxed);
}
void ExpectInterrupt() {
  if (OnMainThread()) interrupt_taken.store(false, std::memory_order_relaxed);
}
bool TakeInterrupt() { return !interrupt_taken.exchange(true); }

namespace {

volatile sig_atomic_t came_late = 0;  // SIGINT while the process was leaving.
struct sigaction usual_interrupt;

void NoteInterrupt(int) { came_late = 1; }

// The last thing that the interpreter does.
void EndByInterrupt() {
  if (came_late == 0) return;
  signal(SIGINT, SIG_DFL);
  raise(SIGINT);
}

}  // namespace

void HoldInterrupts() {
  static const int registered = Py_AtExit(EndByInterrupt);
  struct sigaction note = {};
  note.sa_handler = registered == 0 ? NoteInterrupt : SIG_IGN;
  sigaction(SIGINT, &note, &usual_interrupt);
  if (PyErr_CheckSignals() != 0) {  // One that came just before.
    PyErr_Clear();
    came_late = 1;
  }
}

void RestoreInterrupts() { sigaction(SIGINT, &usual_interrupt, nullptr); }

PyObject* RaiseStatus(const absl::Status& status, ErrorKind resource) {
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (left_for_good && !OnMainThread()) {  // A daemon thread: the others are over by now.
    PyErr_SetNone(PyExc_SystemExit);
    return nullptr;
  }
  if (absl::IsCancelled(status) && ending)
    return RaiseStatus(absl::InternalError("sheaf.shutdown() was called meanwhile"), resource);
  const Owned code = Owned::Steal(PyLong_FromLong(static_cast<long>(status.code())));
  const Owned kind = Owned::Steal(PyLong_FromLong(static_cast<long>(resource)));
  const Owned words = Owned::Steal(NewText({status.message().data(), status.message().size()}));
  if (!code || !kind || !words) return nullptr;
  const Owned error = Owned::Steal(make_status_error(code.get(), kind.get(), words.get()));
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return nullptr;
}

PyObject* RaiseError(const Error& error) {
  const Owned kind = Owned::Steal(PyLong_FromLong(static_cast<long>(error.kind)));
  const Owned words = Owned::Steal(NewText(error.message));
  const Owned payload = Owned::Steal(NewBytes(error.payload));
  if (!kind || !words || !payload) return nullptr;
  const Owned made = Owned::Steal(make_error(kind.get(), words.get(), payload.get()));
  if (made) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.get())), made.get());
  return nullptr;
}

PyObject* PythonFunction::get() {
  if (function_ != nullptr) [[likely]]
    return function_;
  const Owned module = Owned::Steal(PyImport_ImportModule(module_));
  if (module) function_ = PyObject_GetAttrString(module.get(), name_);
  return function_;
}

bool DeadlineFrom(PyObject* seconds, Nanos* deadline) {
  if (seconds == nullptr || seconds == Py_None) {
    *deadline = kForever;
    return true;
  }
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) != 0)
      PyErr_Format(PyExc_TypeError, "timeout=%R: want a number of seconds, or None", seconds);
    return false;
  }
  if (std::isnan(value) || value < 0) {
    PyErr_Format(PyExc_ValueError,
                 "timeout=%S: want a number of seconds that is not negative, or None", seconds);
    return false;
  }
  constexpr double kLongest = 1e9;  // Seconds, 30 years.
  *deadline =
      Deadline(MonotonicNow(), value > kLongest ? kForever : static_cast<Nanos>(value * 1e9));
  return true;
}

}  // namespace sheaf::python
