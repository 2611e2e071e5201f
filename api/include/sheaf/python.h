// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Functions and classes of Python, called by name from C++.
//
//   sheaf::ObjectRef<double> mean = sheaf::PyTask<double>("statistics", "fmean").Remote(numbers);
//   sheaf::PyActorHandle model = sheaf::PyActor("app.models", "Model").Remote("weights.npz");
//   sheaf::ObjectRef<std::string> label = model.Task<std::string>("predict").Remote(pixels);
// The module is imported in a worker that runs Python: InitOptions::python names the interpreter,
// which has the package sheaf; modules are found as `python -m` finds them (the driver's working
// directory, PYTHONPATH). A result is read as the type that the caller names.
//
// What travels: bool, integers, floating-point numbers, std::string (str), vectors and maps of them
// (list, dict), vectors of numbers (NumPy arrays; bytes is a vector of uint8_t), ObjectRefs, and
// whatever sheaf/serialize.h makes of other types: structs, tuples and optionals are lists in
// Python. None is read by ObjectRef<void> and std::monostate.
//
// A Python exception is a TaskError: cause_type() is its class ("ValueError"), cause_message() its
// text, what() has the remote traceback.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sheaf/actor.h"
#include "sheaf/task.h"

namespace sheaf::inline v1 {
namespace internal {

// The record of what Python names so: one for each, for ever. `path`: "module:function", or ":name"
// of a method.
SHEAF_API const FunctionRecord& PythonFunction(FunctionRecord::Kind kind, std::string_view path,
                                               bool streaming);
SHEAF_API Handle FindPythonActor(std::string_view name, std::string_view name_space);

template <class Given>
concept PythonArgument = kIs<Given, ObjectRef> || Serializable<Given> || NumberSpan<Given> ||
                         std::convertible_to<const Given&, std::string_view>;

template <class Given>
void AddPythonArgument(Arguments& out, const Given& given) {
  static_assert(
      PythonArgument<Given>,
      "sheaf: an argument of a Python function cannot travel (see sheaf/python.h for what "
      "can)");
  if constexpr (kIs<Given, ObjectRef>) {
    out.AddReference(given.handle());
  } else if constexpr (PythonArgument<Given>) {
    Encoder encoder;
    if constexpr (std::convertible_to<const Given&, std::string_view>) {
      WriteText(encoder, std::string_view(given));
    } else {
      Write(encoder, given);
    }
    out.Add(encoder);
  }
}

}  // namespace internal

// A function of Python with its options. Copyable; use one object for many calls.
template <class R>
class PyTaskCaller : public internal::OptionHolder,
                     public PlacedOptions<PyTaskCaller<R>>,
                     public RetryOptions<PyTaskCaller<R>> {
 public:
  // Made by PyTask().
  explicit PyTaskCaller(std::string path) : path_(std::move(path)) {}

  // Starts the function in a Python worker and returns at once.
  template <class... Given>
  ObjectRef<R> Remote(const Given&... arguments) {
    return ObjectRef<R>::FromHandle(Submit(false, arguments...));
  }
  // Of a generator function: its items one by one.
  template <class... Given>
  ObjectStream<R> RemoteStream(const Given&... arguments) {
    return ObjectStream<R>::FromHandle(Submit(true, arguments...));
  }

 private:
  template <class... Given>
  internal::Handle Submit(bool streaming, const Given&... arguments) {
    internal::Arguments encoded;
    (internal::AddPythonArgument(encoded, arguments), ...);
    return internal::SubmitTask(
        internal::PythonFunction(internal::FunctionRecord::Kind::kFunction, path_, streaming),
        *this, encoded);
  }

  std::string path_;
};

// `function`: its name in the module, with dots inside classes. R: what its result is read as.
template <class R = void>
PyTaskCaller<R> PyTask(std::string_view module, std::string_view function) {
  return PyTaskCaller<R>(std::string(module) + ":" + std::string(function));
}

// A method of a Python actor with its options. Copyable.
template <class R>
class PyMethodCaller : public internal::OptionHolder, public RetryOptions<PyMethodCaller<R>> {
 public:
  // Made by PyActorHandle::Task().
  PyMethodCaller(internal::Handle actor, std::string path)
      : actor_(std::move(actor)), path_(std::move(path)) {}

  // Runs in this concurrency group of the actor.
  PyMethodCaller& Group(std::string name) {
    this->Change().concurrency_group = std::move(name);
    return *this;
  }
  // Calls the actor and returns at once. Throws PendingCallsLimitError as MaxPendingCalls says.
  template <class... Given>
  ObjectRef<R> Remote(const Given&... arguments) {
    return ObjectRef<R>::FromHandle(Submit(false, arguments...));
  }
  // The same of a generator: its items one by one.
  template <class... Given>
  ObjectStream<R> RemoteStream(const Given&... arguments) {
    return ObjectStream<R>::FromHandle(Submit(true, arguments...));
  }

 private:
  template <class... Given>
  internal::Handle Submit(bool streaming, const Given&... arguments) {
    internal::Arguments encoded;
    (internal::AddPythonArgument(encoded, arguments), ...);
    return internal::SubmitCall(
        actor_, internal::PythonFunction(internal::FunctionRecord::Kind::kMethod, path_, streaming),
        *this, encoded);
  }

  internal::Handle actor_;
  std::string path_;
};

// A running actor of Python. The actor ends when its last handle is gone, unless it is Detached.
class PyActorHandle {
 public:
  PyActorHandle() = default;  // Empty: no actor.
  // Whether it names an actor.
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  // 32 hexadecimal digits, as the command line takes them.
  std::string id() const { return internal::ToHex(internal::ActorIdOf(handle_)); }

  // A method by its name, to be called: handle.Task<int>("add").Remote(1). Its result is read as R.
  template <class R = void>
  PyMethodCaller<R> Task(std::string_view method) const {
    return PyMethodCaller<R>(handle_, ":" + std::string(method));
  }
  // Ready when the constructor has run; throws what it raised.
  ObjectRef<void> Created() const { return ObjectRef<void>::FromHandle(handle_); }

  // For Sheaf's own use.
  const internal::Handle& handle() const noexcept { return handle_; }
  static PyActorHandle FromHandle(internal::Handle handle) {
    PyActorHandle actor;
    actor.handle_ = std::move(handle);
    return actor;
  }

 private:
  internal::Handle handle_;
};

// A class of Python whose instances become actors, with its options.
class PyActorCaller : public ActorOptions<PyActorCaller> {
 public:
  // Made by PyActor().
  explicit PyActorCaller(std::string path) : path_(std::move(path)) {}

  // Makes the actor and returns at once.
  template <class... Given>
  PyActorHandle Remote(const Given&... arguments) {
    internal::Arguments encoded;
    (internal::AddPythonArgument(encoded, arguments), ...);
    return PyActorHandle::FromHandle(internal::CreateActor(
        internal::PythonFunction(internal::FunctionRecord::Kind::kConstructor, path_, false), *this,
        encoded));
  }

 private:
  std::string path_;
};

// A class of Python, of which actors are made: PyActor("app.models", "Model").Remote(...).
inline PyActorCaller PyActor(std::string_view module, std::string_view class_name) {
  return PyActorCaller(std::string(module) + ":" + std::string(class_name));
}

// The actor of that name. Throws NotFoundError, or InvalidArgumentError when it is one of C++.
inline PyActorHandle GetPyActor(std::string_view name, std::string_view name_space = {}) {
  return PyActorHandle::FromHandle(internal::FindPythonActor(name, name_space));
}
// As Kill of an actor of C++.
inline void Kill(const PyActorHandle& actor, bool no_restart = true) {
  internal::KillActor(actor.handle(), no_restart);
}

}  // namespace sheaf::inline v1
