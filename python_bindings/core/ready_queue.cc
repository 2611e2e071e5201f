// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/ready_queue.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"

namespace nb = nanobind;

namespace sheaf::python {
namespace {

class ReadyQueue {
 public:
  ReadyQueue() : shared_(std::make_shared<Shared>()) {
    const MutexLock lock(shared_->mutex);
    shared_->event.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (shared_->event.valid()) return;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }

  ~ReadyQueue() {  // Objects that are waited for may come much later.
    const MutexLock lock(shared_->mutex);
    shared_->event.Reset();
  }

  int Descriptor() const {
    const MutexLock lock(shared_->mutex);
    return shared_->event.get();
  }

  void Notify(nb::handle reference, uint64_t token) {
    Runtime* const runtime = RequireRuntime();
    if (runtime == nullptr) throw nb::python_error();
    if (!IsReference(reference.ptr()))
      throw nb::type_error("notify(ref, token) takes an ObjectRef");
    if (!IsCurrent(reference.ptr())) throw nb::python_error();
    runtime->SignalReady(HandleOf(reference.ptr()), [shared = shared_, token] {
      const MutexLock lock(shared->mutex);
      shared->tokens.push_back(token);
      if (shared->tokens.size() == 1 && shared->event.valid())
        eventfd_write(shared->event.get(), 1);
    });
  }

  nb::list Take() {
    std::vector<uint64_t> tokens;
    {
      const MutexLock lock(shared_->mutex);
      tokens.swap(shared_->tokens);
      eventfd_t count;
      eventfd_read(shared_->event.get(), &count);
    }
    nb::list out;
    for (const uint64_t token : tokens) out.append(token);
    return out;
  }

 private:
  struct Shared {
    Mutex mutex;
    UniqueFd event ABSL_GUARDED_BY(mutex);  // Readable while there are tokens.
    std::vector<uint64_t> tokens ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Shared> shared_;  // With the objects that are waited for, too.
};

}  // namespace

void BindReadyQueue(nb::module_& module) {
  nb::class_<ReadyQueue>(module, "ReadyQueue",
                         "The numbers of references that are ready, for an event loop.")
      .def(nb::init<>())
      .def("fileno", &ReadyQueue::Descriptor, "Readable while take() has something to give.")
      .def("notify", &ReadyQueue::Notify, nb::arg("ref"), nb::arg("token"),
           "take() gives `token`, once, when `ref` is ready and its value is on this node.")
      .def("take", &ReadyQueue::Take, "The tokens of what has become ready since the last take.");
}

}  // namespace sheaf::python
