// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/arrow/capsules.h"

#include <memory>
#include <string>
#include <utility>

#include "python_bindings/core/process.h"

namespace nb = nanobind;

namespace sheaf::python {
namespace {

constexpr char kSchema[] = "arrow_schema";
constexpr char kArray[] = "arrow_array";
constexpr char kStream[] = "arrow_array_stream";

PythonFunction make_error("sheaf.arrow.errors", "from_status");

// What a capsule of this name points to.
template <class T>
T* Pointer(nb::handle capsule, const char* name) {
  void* const pointer = PyCapsule_GetPointer(capsule.ptr(), name);
  if (pointer == nullptr) throw nb::python_error();
  return static_cast<T*>(pointer);
}

template <class T>
void Destroy(PyObject* capsule) {
  auto* const held = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  if (held == nullptr) {
    PyErr_Clear();
    return;
  }
  if (held->release != nullptr) held->release(held);
  delete held;
}

template <class T, class Write>
nb::object Capsule(const char* name, Write write) {
  auto held = std::make_unique<T>();
  write(held.get());
  PyObject* const capsule = PyCapsule_New(held.get(), name, Destroy<T>);
  if (capsule == nullptr) {
    held->release(held.get());
    throw nb::python_error();
  }
  held.release();
  return nb::steal(capsule);
}

arrow::Chunked ValueOf(absl::StatusOr<arrow::Chunked> chunks) {
  if (!chunks.ok()) ThrowArrow(chunks.status());
  return *std::move(chunks);
}

}  // namespace

void ThrowArrow(const absl::Status& status) {
  if (PyErr_Occurred() == nullptr) {
    const std::string name = arrow::ColumnOf(status);
    const Owned code = Owned::Steal(PyLong_FromLong(static_cast<long>(status.code())));
    const Owned column = Owned::Steal(NewText(name));
    const Owned words = Owned::Steal(NewText({status.message().data(), status.message().size()}));
    const Owned error = Owned::Steal(make_error(code.get(), column.get(), words.get()));
    if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  }
  throw nb::python_error();
}

arrow::Chunked TakeChunks(nb::handle object, const char* what) {
  if (nb::hasattr(object, "__arrow_c_stream__")) {
    const nb::object capsule = object.attr("__arrow_c_stream__")();
    auto* const stream = Pointer<ArrowArrayStream>(capsule, kStream);
    const auto read = [&] {
      const WithoutGil free;
      return arrow::ReadStream(stream);
    };
    return ValueOf(read());
  }
  if (nb::hasattr(object, "__arrow_c_array__")) {
    const nb::object pair = object.attr("__arrow_c_array__")();
    if (!nb::isinstance<nb::tuple>(pair) || nb::len(pair) != 2)
      throw nb::type_error("__arrow_c_array__ gives a tuple of two capsules");
    auto* const schema = Pointer<ArrowSchema>(pair[0], kSchema);
    auto* const array = Pointer<ArrowArray>(pair[1], kArray);
    const auto read = [&] {
      const WithoutGil free;
      return arrow::ReadChunk(schema, array);
    };
    return ValueOf(read());
  }
  const std::string words = std::string(what) +
                            ", with __arrow_c_stream__ or __arrow_c_array__, not " +
                            nb::type_name(object.type()).c_str();
  throw nb::type_error(words.c_str());
}

nb::object StreamCapsule(const arrow::Table& table) {
  return Capsule<ArrowArrayStream>(kStream, [&](auto* out) { arrow::WriteStream(table, out); });
}

nb::object SchemaCapsule(const arrow::Table& table) {
  return Capsule<ArrowSchema>(kSchema, [&](auto* out) { arrow::WriteField(table.schema, out); });
}

}  // namespace sheaf::python
