// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "base/resources.h"
#include "base/text/whole_file.h"
#include "python_bindings/core/execution.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/stack_sampler.h"
#include "python_bindings/core/tracing.h"

namespace sheaf::python {
namespace {

// Functions that a worker keeps, and the bytes of their pickles.
constexpr size_t kMostFunctions = 2'000;
constexpr size_t kMostFunctionBytes = 64 << 20;
constexpr Nanos kLongestLeave = 5 * 60 * kSecond;  // As async_actor.py has it.

PythonFunction load_function("sheaf._worker.functions", "load_function");
PythonFunction method_of("sheaf._worker.functions", "method_of");
PythonFunction show_gpus("sheaf._worker.functions", "show_gpus");
PythonFunction show_threads("sheaf._worker.functions", "show_threads");
PythonFunction construct_async("sheaf._worker.async_actor", "construct");
PythonFunction leave_process("sheaf._worker.main", "leave_process");
PythonFunction run_exit_functions("sheaf._worker.main", "run_exit_functions");
PythonFunction cancel_coroutine("sheaf._worker.async_actor", "cancel_call");

// A Python thread of its own for each thread that runs calls, kept between them, so that
// threading.local stays.
void KeepThreadState() {
  thread_local bool kept = false;
  if (kept) return;
  kept = true;
  PyGILState_Ensure();
  PyEval_SaveThread();
}

PythonFunction actor_exit("sheaf.exceptions", "ActorExit");

Owned AsTuple(const CallArguments& arguments) {
  Owned tuple = Owned::Steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.values.size())));
  for (size_t i = 0; tuple && i < arguments.values.size(); ++i) {
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), Owned(arguments.values[i]).Release());
  }
  return tuple;
}

// Of the actor, beside the default one.
Owned GroupNames(const proto::TaskTemplate& creation) {
  Owned names = Owned::Steal(PyTuple_New(creation.actor().groups_size()));
  for (int i = 0; names && i < creation.actor().groups_size(); ++i)
    PyTuple_SetItem(names.get(), i, NewText(creation.actor().groups(i).name()));
  return names;
}

// Whether the exception that is set is what exit_actor raises.
bool IsActorExit() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);  // Looking the class up runs Python.
  PyObject* const kind = actor_exit.get();
  const bool exits = kind != nullptr && PyErr_GivenExceptionMatches(type, kind) != 0;
  PyErr_Restore(type, value, traceback);
  return exits;
}

// The thread runs this call.
class Running {
 public:
  explicit Running(Execution* execution) : outer_(std::exchange(CurrentExecution(), execution)) {
    SetRunsUserCode(true);
    // Not before the function and the arguments are there: an import that is interrupted leaves
    // half of its modules behind, and no later call in this process could import them.
    HoldInterrupt();
  }
  // What is called, once it is known.
  void Calls(const Owned& function) { sampled_.Calls(function); }
  ~Running() {
    CurrentExecution() = outer_;
    SetRunsUserCode(false);
  }

 private:
  Execution* const outer_;
  SampledCall sampled_;
};

// Ends the process as the exception says, if one is set. User code forked, and the child came back
// from the call: it must not answer it. Or an actor's method called sys.exit(1): that is a death.
[[noreturn]] void LeaveProcess() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value != nullptr && traceback != nullptr) PyException_SetTraceback(value, traceback);
  (void)leave_process(value == nullptr ? Py_None : value);
  _exit(1);
}

// A method of an actor raised: sys.exit(0) is exit_actor(), any other sys.exit ends the process.
void BecomeActorExit() {
  if (PyErr_ExceptionMatches(PyExc_SystemExit) == 0) return;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned code = Owned::Steal(PyObject_GetAttrString(value, "code"));
  const bool well = code && PyLong_Check(code.get()) && PyObject_IsTrue(code.get()) == 0;
  PyObject* const kind = actor_exit.get();  // Looking it up runs Python, which wants no exception.
  PyErr_Restore(type, value, traceback);
  if (!well || kind == nullptr) LeaveProcess();
  PyErr_SetNone(kind);
}

// Calls `function`, or the method of that name, with the arguments; `self` (or nullptr) comes
// first.
PyObject* Invoke(PyObject* function, PyObject* self, const CallArguments& arguments) {
  std::vector<PyObject*> list;
  list.reserve(arguments.values.size() + 1);
  if (self != nullptr) list.push_back(self);
  for (const Owned& value : arguments.values) list.push_back(value.get());
  const size_t named =
      arguments.names ? static_cast<size_t>(PyTuple_Size(arguments.names.get())) : 0;
  const size_t positional = list.size() - named;
  if (PyUnicode_Check(function) != 0) {
    return PyObject_VectorcallMethod(function, list.data(), positional, arguments.names.get());
  }
  return PyObject_Vectorcall(function, list.data(), positional, arguments.names.get());
}

// A method that was cancelled while it ran has run to its end: nobody waits for what it gives.
bool WasCancelledInside(const Execution& execution) {
  return execution.cancelled() && execution.spec().kind() == proto::TaskTemplate::ACTOR_METHOD;
}

void FailCancelled(Execution& execution) {
  execution.Fail({ErrorKind::kTaskCancelled,
                  std::string(execution.name()).append(" was cancelled while it ran"),
                  {}},
                 false);
}

void AnswerWith(Execution& execution, PyObject* result) {
  if (WasCancelledInside(execution) && !execution.spec().streaming())
    return FailCancelled(execution);
  ReturnResult(execution, result);
}

// The one that is set.
void AnswerWithException(Execution& execution, bool exits) {
  if (exits || !WasCancelledInside(execution)) return FailWithException(execution);
  BelowSpan::Fail();
  PyErr_Clear();
  FailCancelled(execution);
}

constexpr std::string_view kTitlePrefix = "ray::";
// Fields of /proc/self/stat behind the name of the program, which may hold blanks: arg_start and
// arg_end, 48 and 49 in proc(5), which counts from 1 and the name as 2.
constexpr size_t kArgumentsBegin = 45, kArgumentsEnd = 46;

}  // namespace

ProcessTitle::ProcessTitle() {
  const std::string stat = WholeFile("/proc/self/stat").value_or("");
  std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() <= kArgumentsEnd) return;
  const uintptr_t begin = std::strtoull(fields[kArgumentsBegin].c_str(), nullptr, 10);
  const uintptr_t end = std::strtoull(fields[kArgumentsEnd].c_str(), nullptr, 10);
  if (begin == 0 || end <= begin + kTitlePrefix.size()) return;
  begin_ = reinterpret_cast<char*>(begin);
  size_ = end - begin;
}

void ProcessTitle::Show(std::string_view name) {
  if (begin_ == nullptr || name == shown_) return;
  shown_ = name;
  std::memcpy(begin_, kTitlePrefix.data(), kTitlePrefix.size());
  const size_t length = std::min(name.size(), size_ - 1 - kTitlePrefix.size());
  char* const end = std::copy_n(name.data(), length, begin_ + kTitlePrefix.size());
  std::fill(end, begin_ + size_, '\0');
}

Owned PythonHandler::Find(const proto::TaskTemplate& spec) {
  if (last_ && last_key_ == spec.function()) return last_;
  const auto known = functions_.find(spec.function());
  if (known == functions_.end()) return Load(spec);
  by_use_.splice(by_use_.begin(), by_use_, known->second.place);
  const Owned before = std::exchange(last_, known->second.function);
  last_key_ = spec.function();
  return last_;
}

// Those that were used least lately go: a driver may make a function for each of its calls.
Owned PythonHandler::Load(const proto::TaskTemplate& spec) {
  const Owned key = Owned::Steal(NewText(spec.function()));
  const Owned name = Owned::Steal(NewText(spec.name()));
  const Owned extra = Owned::Steal(NewBytes(spec.extra()));
  // May run user code, and calls.
  const Owned loaded = Owned::Steal(load_function(key.get(), name.get(), extra.get()));
  if (!loaded) return {};
  Owned function = Owned::Borrow(PyTuple_GetItem(loaded.get(), 0));
  const size_t bytes = PyLong_AsSize_t(PyTuple_GetItem(loaded.get(), 1));
  if (instance_ && PyUnicode_Check(function.get()) != 0)
    function = Owned::Steal(method_of(instance_.get(), function.get()));
  if (!function || functions_.contains(spec.function())) return function;
  std::vector<Owned> gone;  // Let go of at the end, which may run user code.
  gone.push_back(std::exchange(last_, function));
  last_key_ = spec.function();
  by_use_.push_front(spec.function());
  functions_[spec.function()] = {function, bytes, by_use_.begin()};
  loaded_bytes_ += bytes;
  while (by_use_.size() > 1 &&
         (by_use_.size() > kMostFunctions || loaded_bytes_ > kMostFunctionBytes)) {
    const auto oldest = functions_.find(by_use_.back());
    loaded_bytes_ -= oldest->second.bytes;
    gone.push_back(std::move(oldest->second.function));
    functions_.erase(oldest);
    by_use_.pop_back();
  }
  return function;
}

void PythonHandler::Execute(std::shared_ptr<Execution> execution) {
  KeepThreadState();
  const WithGil gil;
  Run(execution);  // The reply leaves without the GIL: other threads need not wait for it.
}

void PythonHandler::Run(const std::shared_ptr<Execution>& execution) {
  Running running(execution.get());
  const proto::TaskTemplate& spec = execution->spec();
  if (ended_ != nullptr) return execution->Fail({ErrorKind::kActorDied, ended_, {}}, false);
  const Owned function = Find(spec);
  if (!function) return FailWithException(*execution);
  running.Calls(function);
  title_.Show(execution->name());
  const bool creation = spec.kind() == proto::TaskTemplate::ACTOR_CREATION;
  if (spec.kind() != proto::TaskTemplate::ACTOR_METHOD) {
    ShowLease(spec.lease());
    SetProcessStrategy(spec.lease().strategy());
  }
  BelowSpan span(*execution);
  Owned result;
  {
    CallArguments arguments;
    if (!DecodeArguments(*execution, &arguments)) return FailWithException(*execution);
    ExpectInterrupt();
    if (execution->cancelled()) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
      return FailWithException(*execution);
    }
    // What the values view they hold themselves: a large result needs the room of what is gone.
    execution->DropArguments();
    if (creation) ActorOfProcess() = execution->actor();
    if (creation && spec.actor().is_async()) {
      ConstructorElsewhere() = execution.get();
      const Owned list = AsTuple(arguments);
      const Owned groups = GroupNames(spec);
      result = Owned::Steal(construct_async(function.get(), list.get(),
                                            arguments.names ? arguments.names.get() : Py_None,
                                            groups.get()));
      ConstructorElsewhere() = nullptr;
    } else {
      const bool method = spec.kind() == proto::TaskTemplate::ACTOR_METHOD;
      const Owned self = method ? instance_ : Owned();
      if (method && !self)  // It ended while this thread decoded.
        return execution->Fail({ErrorKind::kActorDied, "the actor has ended", {}}, false);
      result = Owned::Steal(Invoke(function.get(), self.get(), arguments));
    }
  }
  if (IsForked()) [[unlikely]]
    LeaveProcess();
  if (!result) {
    if (spec.kind() == proto::TaskTemplate::ACTOR_METHOD) BecomeActorExit();
    const bool exits = IsActorExit();
    if (exits) span.Excuse();
    AnswerWithException(*execution, exits);
    if (exits) ExitActor();
    return;
  }
  if (creation) {
    instance_ = std::move(result);
    async_.store(spec.actor().is_async(), std::memory_order_release);
    is_actor_.store(true, std::memory_order_release);
    HasCoroutines() = spec.actor().is_async();
    return ReturnResult(*execution, Py_None);
  }
  AnswerWith(*execution, result.get());
}

PyObject* PythonHandler::TakeCalls(PyObject* timeout) {
  std::vector<std::shared_ptr<Execution>> calls;
  Runtime* const runtime = CurrentRuntime();
  bool more = runtime->TakeCalls(0, &calls);  // Without giving up the GIL.
  if (calls.empty() && (timeout == Py_None || PyObject_IsTrue(timeout) != 0)) {
    Nanos deadline;
    if (!DeadlineFrom(timeout, &deadline)) return nullptr;
    const WithoutGil free;
    more = runtime->TakeCalls(deadline, &calls);
  }
  if (calls.empty() && !more) Py_RETURN_NONE;
  Owned list = Owned::Steal(PyList_New(0));
  for (std::shared_ptr<Execution>& execution : calls) {
    const Owned call = Owned::Steal(Prepare(execution));
    if (!call || PyList_Append(list.get(), call.get()) != 0) FailWithException(*execution);
    execution.reset();  // A call that ends on the loop leaves with what it is about.
  }
  return list.Release();
}

namespace {

// What few calls of async actors have: (names of keywords or None, streaming, concurrency group,
// trace or None); None: it is a plain call of a function.
Owned Special(const Execution& execution, const Owned& function, const CallArguments& arguments) {
  const proto::TaskTemplate& spec = execution.spec();
  const Owned trace = TraceOf(execution);
  if (!arguments.names && !spec.streaming() && spec.concurrency_group().empty() &&
      trace.get() == Py_None && PyUnicode_Check(function.get()) == 0) [[likely]]
    return Owned::Borrow(Py_None);
  const Owned group = Owned::Steal(NewText(spec.concurrency_group()));
  if (!group || !trace) return {};
  return Owned::Steal(PyTuple_Pack(4, arguments.names ? arguments.names.get() : Py_None,
                                   spec.streaming() ? Py_True : Py_False, group.get(),
                                   trace.get()));
}

}  // namespace

// nullptr: an exception is set.
PyObject* PythonHandler::Prepare(const std::shared_ptr<Execution>& execution) {
  if (ended_ != nullptr) {
    PyErr_SetNone(actor_exit.get());
    return nullptr;
  }
  const Owned function = Find(execution->spec());
  CallArguments arguments;
  if (!function || !DecodeArguments(*execution, &arguments)) return nullptr;
  execution->DropArguments();
  SampleAsyncCall();
  const Owned self = instance_;
  if (!self) {
    PyErr_SetNone(actor_exit.get());
    return nullptr;
  }
  const Owned list = AsTuple(arguments);
  const Owned special = Special(*execution, function, arguments);
  const Owned object = Owned::Steal(NewExecutionObject(execution));
  if (!list || !object || !special) return nullptr;
  return PyTuple_Pack(5, object.get(), function.get(), self.get(), list.get(), special.get());
}

// The calls that run on other threads may end first; none begins.
void PythonHandler::ExitActor() {
  const bool first = std::exchange(ended_, "the actor has called exit_actor()") == nullptr;
  if (!first) return;
  const WithoutGil free;
  (void)CurrentRuntime()->ExitActor(kLongestLeave, [this] {
    const WithGil gil;
    EndInstance();
  });
}

void PythonHandler::Leave() {
  const WithGil gil;
  if (ended_ == nullptr) ended_ = "the actor's process leaves";
  EndInstance();
}

// What users have for the end of an actor: __ray_shutdown__, atexit functions, __del__.
void PythonHandler::EndInstance() {
  if (!Owned::Steal(run_exit_functions())) PyErr_Clear();
  // What goes may run user code, and other threads meanwhile: nothing of it is found any more then.
  const Owned last = std::exchange(last_, {});
  const auto functions = std::exchange(functions_, {});
  by_use_.clear();
  loaded_bytes_ = 0;
  last_key_.clear();
  const Owned instance = std::exchange(instance_, {});
}

// Lets libraries see the GPUs of the lease, and start as many threads as it has CPUs.
void PythonHandler::ShowLease(const proto::LeaseSpec& lease) {
  const proto::Resources& held = lease.has_running() ? lease.running() : lease.resources();
  int64_t threads = 1;
  bool has_gpus = false;
  for (const auto& [name, amount] : held.amounts()) {
    if (name == "CPU") threads = std::max<int64_t>(amount / kUnit, 1);
    if (name == "GPU") has_gpus = true;
  }
  if (has_gpus) {
    const std::vector<uint32_t> ids = CurrentRuntime()->gpu_ids();
    const Owned list = Owned::Steal(PyList_New(0));
    for (const uint32_t id : ids) {
      const Owned number = Owned::Steal(PyLong_FromUnsignedLong(id));
      PyList_Append(list.get(), number.get());
    }
    if (!Owned::Steal(show_gpus(list.get()))) PyErr_Clear();
  }
  if (threads == std::exchange(threads_, threads)) [[likely]]
    return;
  const Owned number = Owned::Steal(PyLong_FromLongLong(threads));
  if (!Owned::Steal(show_threads(number.get()))) PyErr_Clear();
}

// A task on the main thread is interrupted as Ctrl-C would: SIGINT ends a sleep or a read, and its
// handler raises, once, if the call that runs is the one that was cancelled. A signal that comes
// between the interpreter's last look and the sleep is lost: the next one ends it. Coroutines are
// cancelled as asyncio does it.
void PythonHandler::Cancel(TaskId task) {
  if (!async_) {
    // A method that is broken off would leave its actor's state half changed: it may ask whether it
    // is cancelled, and runs to its end.
    if (!is_actor_) InterruptMainThread();
    return;
  }
  const CallbackScope scope;  // The event loop's thread may hold the GIL already.
  const Owned name = Owned::Steal(NewBytes(task.Binary()));
  const Owned done = Owned::Steal(cancel_coroutine(name.get()));
}

}  // namespace sheaf::python
