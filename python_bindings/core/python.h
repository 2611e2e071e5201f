// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What every source file here needs of CPython: owned references, the GIL, and three calls that the
// stable ABI has under the same signature since 3.12 and CPython exports since 3.11.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <structmember.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#if Py_LIMITED_API + 0 != 0 && Py_LIMITED_API + 0 < 0x030C0000
extern "C" {
PyAPI_FUNC(PyObject*)
    PyObject_Vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* names);
PyAPI_FUNC(PyObject*) PyObject_VectorcallMethod(PyObject* name, PyObject* const* args,
                                                size_t nargsf, PyObject* names);
}
#define PY_VECTORCALL_ARGUMENTS_OFFSET (size_t{1} << (8 * sizeof(size_t) - 1))
#endif

namespace sheaf::python {

// One reference, or nothing. The GIL is held whenever one is copied or dropped.
class Owned {
 public:
  Owned() = default;
  Owned(const Owned& other) : object_(other.object_) { Py_XINCREF(object_); }
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  static Owned Steal(PyObject* object) {  // A new reference, or nullptr with an exception set.
    Owned owned;
    owned.object_ = object;
    return owned;
  }
  static Owned Borrow(PyObject* object) {
    Py_XINCREF(object);
    return Steal(object);
  }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* get() const { return object_; }
  PyObject* Release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Gives what `call` does, which may take the GIL. Once the interpreter ends, Python ends threads
// that ask for it by unwinding them, which frames of C++ on the way do not survive: such a thread
// (a daemon's, or one of callbacks) stays here instead, until the process is gone.
template <class Function>
auto UnlessPythonEnds(Function call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    while (true) pause();
  }
}

// The GIL is free inside.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    UnlessPythonEnds([&] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// The GIL is held inside, on any thread.
class WithGil {
 public:
  WithGil() : state_(UnlessPythonEnds(PyGILState_Ensure)) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// The GIL, for Python code that the runtime runs in between: what it raises ends there, and an
// exception that is on its way in the program meanwhile stays. KeyboardInterrupt that strikes the
// main thread here is raised again where the program waits.
class CallbackScope {
 public:
  CallbackScope() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~CallbackScope() {
    if (PyErr_Occurred() != nullptr) {
      if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) PyErr_SetInterrupt();
      PyErr_Clear();
    }
    PyErr_Restore(type_, value_, traceback_);
  }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
  static bool Interrupted() {
    return PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
  }

 private:
  const WithGil gil_;
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

inline std::string_view BytesOf(PyObject* bytes) {  // `bytes` is a bytes object.
  return {PyBytes_AsString(bytes), static_cast<size_t>(PyBytes_Size(bytes))};
}
inline PyObject* NewBytes(std::string_view bytes) {
  return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}
inline PyObject* NewText(std::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

}  // namespace sheaf::python
