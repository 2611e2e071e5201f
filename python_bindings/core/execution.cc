// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/execution.h"

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"
#include "python_bindings/core/tracing.h"

namespace sheaf::python {
namespace {

PythonFunction describe_failure("sheaf._worker.errors", "describe_failure");
PythonFunction execution_here("sheaf._worker.async_actor", "execution_here");
PythonFunction wrong_count("sheaf._worker.errors", "wrong_count");
PythonFunction too_few_items("sheaf._worker.errors", "too_few_items");
PythonFunction coroutine_type("types", "CoroutineType");
PythonFunction is_awaitable("inspect", "isawaitable");

constexpr Py_ssize_t kFewArguments = 8;  // They lie on the stack.

void FailPlainly(Execution& execution, ErrorKind kind, std::string message) {
  execution.Fail({kind, std::move(message), {}}, false);
}

absl::Status Store(Execution& execution, size_t index, const Value& value) {
  const size_t size = value.size();
  if (size <= kSmallValueBytes) {
    // References leave with it, whose values may wait for memory of the store.
    std::optional<WithoutGil> free;
    if (!value.nested().empty()) free.emplace();
    if (const std::string_view whole = value.whole(); !whole.empty())
      return execution.Return(index, whole, value.nested());
    std::string bytes(size, '\0');
    value.CopyTo(bytes.data());
    return execution.Return(index, bytes, value.nested());
  }
  const WithoutGil free;
  absl::StatusOr<MutableBuffer> buffer = execution.CreateReturn(index, size, value.nested());
  if (!buffer.ok()) return buffer.status();
  value.CopyTo(reinterpret_cast<char*>(buffer->data()), buffer->pages());
  return execution.ReturnBuffer(index, *std::move(buffer), value.nested());
}

// Another language made the call (kNamedPrefix of api/include/sheaf/internal/registry.h): it reads
// plain values.
bool EncodeFor(const Execution& execution, PyObject* result, Value* value) {
  if (!std::string_view(execution.spec().function()).starts_with("name:")) [[likely]]
    return value->Encode(result);
  return value->EncodePlain(result, std::string("the result of ").append(execution.name()));
}

// False: the call has failed.
bool ReturnOne(Execution& execution, size_t index, PyObject* result) {
  Value value;
  if (!EncodeFor(execution, result, &value)) {
    FailWithException(execution);
    return false;
  }
  const absl::Status stored = Store(execution, index, value);
  if (!stored.ok()) {
    FailPlainly(
        execution,
        absl::IsInvalidArgument(stored) ? ErrorKind::kInvalidArgument : ErrorKind::kObjectStoreFull,
        std::string(stored.message()));
  }
  return stored.ok();
}

// What a generator yielded before it raised, or ended too early, stays.
void ReturnItems(Execution& execution, PyObject* iterator, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Owned item = Owned::Steal(PyIter_Next(iterator));
    if (!item) {
      if (PyErr_Occurred() == nullptr) {
        const Owned given = Owned::Steal(PyLong_FromSize_t(i));
        const Owned wanted = Owned::Steal(PyLong_FromSize_t(count));
        const Owned raised = Owned::Steal(too_few_items(given.get(), wanted.get()));  // Raises.
      }
      return FailWithException(execution, i);
    }
    if (!ReturnOne(execution, i, item.get())) return;
  }
  // Once more, so that what stands behind the last yield runs; the results stay, whatever comes.
  const Owned rest = Owned::Steal(PyIter_Next(iterator));
  PyErr_Clear();
}

void ReturnSeveral(Execution& execution, PyObject* result, size_t count) {
  // What may run again brings all or nothing: results of a run that failed would lie in the store.
  const bool repeats = execution.spec().retry_exceptions();
  if (PyIter_Check(result) != 0 && !repeats) return ReturnItems(execution, result, count);
  const Owned items = Owned::Steal(PySequence_List(result));
  if (!items && PyIter_Check(result) != 0) return FailWithException(execution);  // It raised.
  if (!items || static_cast<size_t>(PyList_Size(items.get())) != count) {
    PyErr_Clear();
    const Owned number = Owned::Steal(PyLong_FromSize_t(count));
    const Owned raised =
        Owned::Steal(wrong_count(result, items ? items.get() : Py_None, number.get()));  // Raises.
    return FailWithException(execution);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!ReturnOne(execution, i, PyList_GetItem(items.get(), static_cast<Py_ssize_t>(i)))) return;
  }
}

void ReturnStream(Execution& execution, PyObject* result) {
  const Owned iterator = Owned::Steal(PyObject_GetIter(result));
  if (!iterator) return FailWithException(execution);
  while (true) {
    const Owned item = Owned::Steal(PyIter_Next(iterator.get()));
    if (!item) {
      if (PyErr_Occurred() != nullptr) FailWithException(execution);
      return;
    }
    bool wanted = false;
    if (!YieldItem(execution, item.get(), &wanted)) return FailWithException(execution);
    if (!wanted) return;
  }
}

struct ExecutionObject {
  PyObject_HEAD std::shared_ptr<Execution> execution;
};
PyTypeObject* execution_type = nullptr;

std::shared_ptr<Execution>& In(PyObject* self) {
  return reinterpret_cast<ExecutionObject*>(self)->execution;
}

// With the GIL, as a submission: the reply takes less time than to give it up and take it again, and
// nobody who holds the runtime's lock wants it.
void Release(PyObject* self) { In(self).reset(); }

void Dealloc(PyObject* self) {
  if (In(self) != nullptr) Release(self);
  In(self).~shared_ptr();
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* Finish(PyObject* self, PyObject* result) {
  if (In(self) == nullptr) Py_RETURN_NONE;
  ReturnResult(*In(self), result);
  Release(self);
  Py_RETURN_NONE;
}

// function(actor, *arguments), up to where it first waits. `ended`: that was a coroutine, whose
// result this is. nullptr: an exception is set.
PyObject* FirstStep(PyObject* function, PyObject* actor, PyObject* arguments, PyObject** awaited,
                    bool* ended) {
  const Py_ssize_t count = PyTuple_Size(arguments);
  PyObject* few[kFewArguments + 2];  // The callee may use the first for itself.
  std::unique_ptr<PyObject*[]> many;
  if (count > kFewArguments) many.reset(new PyObject*[static_cast<size_t>(count) + 2]);
  PyObject** const list = (many ? many.get() : few) + 1;
  list[0] = actor;
  for (Py_ssize_t i = 0; i < count; ++i) list[i + 1] = PyTuple_GetItem(arguments, i);
  Owned result = Owned::Steal(PyObject_Vectorcall(
      function, list, static_cast<size_t>(count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!result || reinterpret_cast<PyObject*>(Py_TYPE(result.get())) != coroutine_type.get())
    return result.Release();
  PyObject* value = nullptr;
  switch (PyIter_Send(result.get(), Py_None, &value)) {
    case PYGEN_RETURN:
      *ended = true;
      return value;
    case PYGEN_NEXT:
      *awaited = value;
      return result.Release();
    default:
      return nullptr;
  }
}

// Whether what a method gave is to be awaited. -1: an exception is set.
// A reference is a value, which the caller gets as it is.
int IsAwaitable(PyObject* result) {
  if (result == Py_None || PyLong_CheckExact(result) != 0 || PyUnicode_CheckExact(result) != 0 ||
      IsReference(result))
    return 0;
  const Owned answer = Owned::Steal(is_awaitable(result));
  return answer ? PyObject_IsTrue(answer.get()) : -1;
}

// begin(function, actor, arguments)
PyObject* Begin(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 3 || In(self) == nullptr) {
    PyErr_SetString(PyExc_TypeError, "begin(function, actor, arguments), once");
    return nullptr;
  }
  PyObject* awaited = nullptr;
  bool ended = false;
  const Owned result = Owned::Steal(FirstStep(args[0], args[1], args[2], &awaited, &ended));
  if (!result) return nullptr;
  if (awaited != nullptr) return Py_BuildValue("(ON)", result.get(), awaited);
  // What a coroutine returns is the result, as it is: a reference, say, can be awaited, too.
  const int waits = ended ? 0 : IsAwaitable(result.get());
  if (waits != 0) return waits < 0 ? nullptr : PyTuple_Pack(1, result.get());
  ReturnResult(*In(self), result.get());
  Release(self);
  Py_RETURN_NONE;
}

PyObject* FailCall(PyObject* self, PyObject* exception) {
  if (In(self) == nullptr) Py_RETURN_NONE;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  FailWithException(*In(self));
  Release(self);
  Py_RETURN_NONE;
}

PyObject* Item(PyObject* self, PyObject* value) {
  bool wanted = false;
  if (In(self) == nullptr || !YieldItem(*In(self), value, &wanted)) return nullptr;
  return PyBool_FromLong(wanted);
}

PyObject* End(PyObject* self, PyObject*) {
  if (In(self) != nullptr) Release(self);
  Py_RETURN_NONE;
}

PyObject* TaskBytes(PyObject* self, PyObject*) {
  return NewBytes(In(self) == nullptr ? std::string() : In(self)->task().Binary());
}

PyObject* IsCancelled(PyObject* self, PyObject*) {
  return PyBool_FromLong(In(self) != nullptr && In(self)->cancelled());
}

PyMethodDef methods[] = {
    {"begin", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Begin)), METH_FASTCALL,
     "Calls function(actor, *arguments), and if that is a coroutine, runs it up to where it first "
     "waits. None: it has ended, and the call with it. (coroutine, what it waits for), or (what is "
     "to be awaited,)."},
    {"finish", Finish, METH_O, "Ends the call with a result."},
    {"fail", FailCall, METH_O, "Ends the call with an exception."},
    {"item", Item, METH_O, "Sends an item of a streaming call; False: no more are wanted."},
    {"end", End, METH_NOARGS, "Ends a streaming call."},
    {"task", TaskBytes, METH_NOARGS, "The id of the call, as long as that has not ended."},
    {"cancelled", IsCancelled, METH_NOARGS, "Whether somebody asked for the call's end."},
    {}};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)}, {Py_tp_methods, methods}, {}};
PyType_Spec spec = {"sheaf._core.Execution", sizeof(ExecutionObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

Execution*& CurrentExecution() {
  thread_local Execution* current = nullptr;
  return current;
}

Execution*& ConstructorElsewhere() {
  static Execution* constructor = nullptr;
  return constructor;
}

ActorId& ActorOfProcess() {
  static ActorId actor;
  return actor;
}

namespace {

proto::Strategy& StrategyCell() {
  static proto::Strategy& strategy = *new proto::Strategy;
  return strategy;
}

}  // namespace

const proto::Strategy& ProcessStrategy() { return StrategyCell(); }

void SetProcessStrategy(const proto::Strategy& strategy) {
  proto::Strategy& known = StrategyCell();
  if (known.group_id() == strategy.group_id() &&
      known.capture_children() == strategy.capture_children()) [[likely]]
    return;
  known = strategy;
  SetInheritedGroup(strategy.capture_children() ? strategy.group_id() : "");
}

bool& HasCoroutines() {
  static bool has = false;
  return has;
}

namespace {

// The _core.Execution whose coroutine runs on this thread, which has not ended; or nothing.
Owned Coroutine() {
  if (!HasCoroutines()) return {};
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  Owned found = Owned::Steal(execution_here());
  PyErr_Restore(type, value, traceback);
  if (!found || Py_TYPE(found.get()) != execution_type || In(found.get()) == nullptr) return {};
  return found;
}

PyObject* DescribeExecution(const Execution* execution) {
  if (execution == nullptr) execution = ConstructorElsewhere();
  if (execution == nullptr) {  // A thread that user code has started.
    if (ActorOfProcess().is_nil()) return PyDict_New();
    return Py_BuildValue("{ss}", "actor", ActorOfProcess().ToHex().c_str());
  }
  const std::string task = execution->task().ToHex();
  const std::string actor = execution->actor().is_nil() ? "" : execution->actor().ToHex();
  return Py_BuildValue("{ss#ss#ss#ss#sI}", "task", task.data(),
                       static_cast<Py_ssize_t>(task.size()), "actor", actor.data(),
                       static_cast<Py_ssize_t>(actor.size()), "name", execution->name().data(),
                       static_cast<Py_ssize_t>(execution->name().size()), "function",
                       execution->spec().function().data(),
                       static_cast<Py_ssize_t>(execution->spec().function().size()), "attempt",
                       execution->attempt());
}

}  // namespace

CallOrigin OriginOfCoroutine() {
  const Owned coroutine = Coroutine();
  return coroutine ? In(coroutine.get())->origin() : CallOrigin{};
}

PyObject* DescribeCurrentExecution() {
  const Owned coroutine = CurrentExecution() == nullptr ? Coroutine() : Owned();
  return DescribeExecution(coroutine ? In(coroutine.get()).get() : CurrentExecution());
}

bool IsCurrentExecutionCancelled() {
  const Owned coroutine = Coroutine();
  const Execution* const current = coroutine ? In(coroutine.get()).get() : CurrentExecution();
  return current != nullptr && current->cancelled();
}

bool DecodeArguments(const Execution& execution, CallArguments* out) {
  const size_t count = execution.argument_count();
  size_t next = 0;
  if (count > 0) {
    const std::string_view first = execution.argument(0).bytes;
    if (first.size() > 2 && static_cast<uint8_t>(first[0]) == kOutOfBandMark &&
        first[1] == kVersionNames) {
      out->names = Owned::Steal(DecodeValue({first.substr(2), {}, {}, {}, {}}));
      if (!out->names) return false;
      next = 1;
    }
  }
  out->values.reserve(count + 1);
  for (; next < count; ++next) {
    out->values.push_back(Owned::Steal(DecodeValue(execution.argument(next))));
    if (!out->values.back()) return false;
  }
  return true;
}

void ReturnResult(Execution& execution, PyObject* result) {
  const proto::TaskTemplate& spec = execution.spec();
  if (spec.streaming()) return ReturnStream(execution, result);
  if (spec.num_returns() > 1) return ReturnSeveral(execution, result, spec.num_returns());
  ReturnOne(execution, 0, spec.num_returns() == 0 ? Py_None : result);
}

bool YieldItem(Execution& execution, PyObject* item, bool* wanted) {
  Value value;
  if (!EncodeFor(execution, item, &value)) return false;
  std::string bytes(value.size(), '\0');
  absl::Status sent;
  {
    const WithoutGil free;
    value.CopyTo(bytes.data());
    sent = execution.Yield(bytes, value.nested());
  }
  *wanted = sent.ok();
  if (sent.ok() || absl::IsCancelled(sent)) return PyErr_Occurred() == nullptr;
  RaiseStatus(sent, ErrorKind::kObjectStoreFull);
  return false;
}

void FailWithException(Execution& execution, size_t first) {
  BelowSpan::Fail();
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned kept_type = Owned::Steal(type);
  const Owned kept_traceback = Owned::Steal(traceback);
  const Owned exception = Owned::Steal(value);
  if (!exception)
    return FailPlainly(execution, ErrorKind::kSystem, "a call failed without an exception");
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  const proto::TaskTemplate& spec = execution.spec();
  const Owned name = Owned::Steal(NewText(execution.name()));
  const Owned key = Owned::Steal(NewText(spec.function()));
  const Owned cancelled = Owned::Steal(PyBool_FromLong(execution.cancelled()));
  const Owned retries = Owned::Steal(PyBool_FromLong(spec.retry_exceptions()));
  const Owned told = Owned::Steal(
      describe_failure(exception.get(), name.get(), key.get(), cancelled.get(), retries.get()));
  int kind = 0;
  const char* words = nullptr;
  Py_ssize_t words_size = 0;
  const char* payload = nullptr;
  Py_ssize_t payload_size = 0;
  int retriable = 0;
  if (!told || PyArg_ParseTuple(told.get(), "is#y#p", &kind, &words, &words_size, &payload,
                                &payload_size, &retriable) == 0) {
    PyErr_Clear();
    const ErrorKind known = execution.cancelled() ? ErrorKind::kTaskCancelled : ErrorKind::kSystem;
    return FailPlainly(
        execution, known,
        std::string(execution.name()).append(" failed with an exception that cannot be described"));
  }
  Error error{static_cast<ErrorKind>(kind), std::string(words, static_cast<size_t>(words_size)),
              std::string(payload, static_cast<size_t>(payload_size))};
  if (first == 0 || retriable != 0) return execution.Fail(std::move(error), retriable != 0);
  execution.FailFrom(first, std::move(error));
}

PyObject* NewExecutionObject(std::shared_ptr<Execution> execution) {
  ExecutionObject* const made = PyObject_New(ExecutionObject, execution_type);
  if (made == nullptr) return nullptr;
  new (&made->execution) std::shared_ptr<Execution>(std::move(execution));
  return reinterpret_cast<PyObject*>(made);
}

bool AddExecutionType(PyObject* module) {
  execution_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return execution_type != nullptr &&
         PyModule_AddObjectRef(module, "Execution", reinterpret_cast<PyObject*>(execution_type)) ==
             0;
}

}  // namespace sheaf::python
