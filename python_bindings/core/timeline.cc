// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/timeline.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "python_bindings/core/process.h"

namespace sheaf::python {
namespace {

struct Record {
  uint64_t begin, end;
  uint32_t thread, zero;
  char name[40];
};
static_assert(sizeof(Record) == 64);

PythonFunction open_file("sheaf._internal.timeline_file", "open_file");

// The file's memory, for ever. Empty: there is none.
struct File {
  File() {
    const Owned opened = Owned::Steal(open_file());
    Py_buffer buffer;
    if (!opened || opened.get() == Py_None ||
        PyObject_GetBuffer(opened.get(), &buffer, PyBUF_WRITABLE) != 0) {
      PyErr_Clear();
      return;
    }
    count = static_cast<uint64_t*>(buffer.buf);
    records = static_cast<Record*>(buffer.buf) + 1;
    capacity = static_cast<uint64_t>(buffer.len) / sizeof(Record) - 1;
  }
  uint64_t* count = nullptr;
  Record* records = nullptr;
  uint64_t capacity = 0;
};

uint32_t ThisThread() {
  static std::atomic<uint32_t> threads{0};
  thread_local const uint32_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

void RecordCall(std::string_view name, Nanos begin) {
  // Opening it runs Python, and so may let other threads come here; no static that guards itself,
  // since they would wait for it with the GIL.
  static File* opened = nullptr;
  static bool opening = false;
  if (opened == nullptr) {
    if (std::exchange(opening, true)) return;
    opened = new File;
  }
  const File& file = *opened;
  if (file.capacity == 0) return;
  Record& record = file.records[*file.count % file.capacity];
  record.begin = static_cast<uint64_t>(begin);
  record.end = static_cast<uint64_t>(MonotonicNow());
  record.thread = ThisThread();
  const size_t length = std::min(name.size(), sizeof record.name);
  std::memcpy(record.name, name.data(), length);
  std::memset(record.name + length, 0, sizeof record.name - length);
  ++*file.count;
}

}  // namespace sheaf::python
