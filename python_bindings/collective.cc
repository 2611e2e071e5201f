// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/collective.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collective/hierarchical_communicator.h"
#include "python_bindings/process.h"
#include "worker/gcs_rendezvous.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

PythonFunction make_error("sheaf.util.collective.errors", "from_status");

// Raises what `status` means; an exception of a signal handler comes first.
[[noreturn]] void Throw(const absl::Status& status) {
  if (PyErr_Occurred() == nullptr) {
    const Owned code = Owned::Steal(PyLong_FromLong(static_cast<long>(status.code())));
    const Owned rank = Owned::Steal(PyLong_FromLong(RankOf(status).value_or(-1)));
    const Owned words = Owned::Steal(NewText({status.message().data(), status.message().size()}));
    const Owned error = Owned::Steal(make_error(code.get(), rank.get(), words.get()));
    if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  }
  throw nb::python_error();
}

void ThrowIfFailed(const absl::Status& status) {
  if (!status.ok()) [[unlikely]]
    Throw(status);
}

Nanos NanosOf(double seconds) {
  if (std::isnan(seconds) || seconds <= 0) {
    throw nb::value_error("a timeout is a number of seconds greater than 0");
  }
  constexpr double kLongest = 1e9;  // Seconds, 30 years.
  return seconds > kLongest ? kForever : static_cast<Nanos>(seconds * 1e9);
}

std::optional<DataType> TypeNamed(std::string_view name) {
  for (int type = 0; type < kDataTypes; ++type) {
    if (name == NameOf(static_cast<DataType>(type))) return static_cast<DataType>(type);
  }
  return std::nullopt;
}

// The bytes of an object with the buffer protocol, held as long as this lives.
class Bytes {
 public:
  Bytes() = default;
  Bytes(nb::handle object, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    held_ = true;
  }
  Bytes(Bytes&& other) noexcept : view_(other.view_), held_(std::exchange(other.held_, false)) {}
  Bytes& operator=(Bytes&&) = delete;
  ~Bytes() {
    if (held_) PyBuffer_Release(&view_);
  }
  void* data() const { return held_ ? view_.buf : nullptr; }
  size_t size() const { return held_ ? static_cast<size_t>(view_.len) : 0; }
  bool held() const { return held_; }
  // By its format; none: no type that is reduced.
  std::optional<DataType> type() const {
    std::string_view format = view_.format != nullptr ? view_.format : "B";
    if (format.size() == 2 && std::string_view("@=<").find(format[0]) != format.npos) {
      format.remove_prefix(1);
    }
    if (format.size() != 1) return std::nullopt;
    switch (format[0]) {
      case 'f':
        return DataType::kFloat32;
      case 'd':
        return DataType::kFloat64;
      case 'e':
        return DataType::kFloat16;
      case 'i':
      case 'l':
      case 'q':
        return view_.itemsize == 4   ? std::optional(DataType::kInt32)
               : view_.itemsize == 8 ? std::optional(DataType::kInt64)
                                     : std::nullopt;
      case 'B':
      case '?':
        return DataType::kUint8;
      default:
        return std::nullopt;
    }
  }
  std::string format() const { return view_.format != nullptr ? view_.format : "B"; }

 private:
  Py_buffer view_{};
  bool held_ = false;
};

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

// An operation and the arrays that it keeps.
struct Call {
  Bytes input;
  Bytes output;
  Operation operation;
};

// A running operation. Its arrays are held until it is done, whoever forgets it.
class PyWork {
 public:
  PyWork(std::shared_ptr<Work> work, Call call) : work_(std::move(work)), call_(std::move(call)) {}
  PyWork(PyWork&&) = default;
  ~PyWork() {
    if (work_ == nullptr || work_->Done()) return;
    const WithoutGil free;
    while (!work_->Done()) work_->Wait(kSecond).IgnoreError();
  }
  bool Done() const { return work_->Done(); }
  // False: it is still running after `timeout` seconds.
  bool Wait(std::optional<double> timeout) {
    const Nanos limit = timeout.has_value() ? NanosOf(*timeout) : kForever;
    absl::Status status;
    {
      const WithoutGil free;
      status = work_->Wait(limit);
    }
    if (!work_->Done()) {
      if (absl::IsDeadlineExceeded(status)) return false;
      Throw(status);
    }
    ThrowIfFailed(status);
    return true;
  }

 private:
  std::shared_ptr<Work> work_;
  Call call_;
};

// Memory of the arena, as a buffer.
class PyMemory {
 public:
  PyMemory(std::shared_ptr<std::byte> memory, size_t size)
      : memory_(std::move(memory)), size_(size) {}
  static int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
    const PyMemory* memory = nb::inst_ptr<PyMemory>(self);
    return PyBuffer_FillInfo(view, self, memory->memory_.get(),
                             static_cast<Py_ssize_t>(memory->size_), /*readonly=*/0, flags);
  }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t size_;
};

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&PyMemory::GetBuffer)},
                              {0, nullptr}};

class PyGroup {
 public:
  explicit PyGroup(std::unique_ptr<Communicator> group) : group_(std::move(group)) {}
  PyGroup(PyGroup&&) = default;
  ~PyGroup() { Close(); }
  // Leaves the group. Operations of other threads end first, by their own timeout at the latest.
  void Close() {
    std::shared_ptr<Communicator> group = std::move(group_);
    group_ = nullptr;
    if (group == nullptr) return;
    const WithoutGil free;
    group.reset();
  }
  std::shared_ptr<Communicator> Get() const {
    if (group_ == nullptr) throw nb::value_error("the collective group was destroyed");
    return group_;
  }

  Call Prepare(int kind, nb::handle input, nb::handle output,
               const std::optional<std::string>& type, int op, int peer, double timeout) const {
    const std::shared_ptr<Communicator> group = Get();
    Call call{input.is_none() ? Bytes() : Bytes(input, false),
              output.is_none() ? Bytes() : Bytes(output, true),
              {}};
    Operation& operation = call.operation;
    operation.kind = static_cast<CollectiveKind>(kind);
    operation.op = static_cast<ReduceOp>(op);
    operation.peer = peer;
    operation.timeout = NanosOf(timeout);
    operation.input = call.input.data();
    operation.output = call.output.data();
    if (operation.kind == CollectiveKind::kBarrier) return call;
    const Bytes& one = call.input.held() ? call.input : call.output;
    std::optional<DataType> known = type.has_value() ? TypeNamed(*type) : one.type();
    if (!known.has_value() && Reduces(operation.kind)) {
      throw nb::type_error(("arrays of format '" + one.format() +
                            "' cannot be reduced: want float16, float32, float64, int32, int64 or "
                            "uint8, or bfloat16 of torch")
                               .c_str());
    }
    operation.type = known.value_or(DataType::kUint8);  // What is only copied is bytes.
    const size_t world = static_cast<size_t>(group->world_size());
    const size_t element = SizeOf(operation.type);
    // The part that `count` counts, by what is given of the two.
    const bool by_output = operation.kind == CollectiveKind::kReduceScatter;
    const Bytes& counted = by_output && call.output.held() ? call.output : one;
    size_t bytes = counted.size();
    if (operation.kind == CollectiveKind::kAllToAll) bytes /= world;
    operation.count = bytes / element;
    const auto want = [&](const Bytes& array, const char* what, size_t size) {
      if (!array.held() || array.size() == size) return;
      throw nb::value_error((std::string(NameOf(operation.kind)) + ": the " + what + " has " +
                             std::to_string(array.size()) + " bytes, want " + std::to_string(size))
                                .c_str());
    };
    const bool spreads = operation.kind == CollectiveKind::kAllToAll;
    want(call.input, "input", operation.count * element * (by_output || spreads ? world : 1));
    want(call.output, "output",
         operation.count * element *
             (operation.kind == CollectiveKind::kAllGather || spreads ? world : 1));
    return call;
  }

  void Run(int kind, nb::handle input, nb::handle output, std::optional<std::string> type, int op,
           int peer, double timeout) const {
    const Call call = Prepare(kind, input, output, type, op, peer, timeout);
    const std::shared_ptr<Communicator> group = Get();
    absl::Status status;
    {
      const WithoutGil free;
      status = group->Run(call.operation);
    }
    ThrowIfFailed(status);
  }

  PyWork Start(int kind, nb::handle input, nb::handle output, std::optional<std::string> type,
               int op, int peer, double timeout) const {
    Call call = Prepare(kind, input, output, type, op, peer, timeout);
    std::shared_ptr<Work> work = Get()->Start(call.operation);
    return PyWork(std::move(work), std::move(call));
  }

  PyMemory Allocate(size_t size) const {
    absl::StatusOr<std::shared_ptr<std::byte>> memory = Get()->Allocate(size);
    ThrowIfFailed(memory.status());
    return PyMemory(*std::move(memory), size);
  }

 private:
  std::shared_ptr<Communicator> group_;
};

PyGroup Form(const std::string& name, int world_size, int rank, uint64_t epoch, size_t arena_bytes,
             double timeout) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) throw nb::python_error();
  CommunicatorOptions options{
      .name = name,
      .rank = rank,
      .world_size = world_size,
      .epoch = epoch,
      .arena_bytes = arena_bytes,
      .formation_timeout = NanosOf(timeout),
      .interrupted = IsWorker() ? &WorkerInterrupted : &DriverInterrupted,
  };
  const Using use;
  absl::StatusOr<std::unique_ptr<Communicator>> group;
  {
    const WithoutGil free;
    GcsRendezvous rendezvous(*runtime, name);
    const absl::StatusOr<CollectivePlace> place =
        PlaceOfThisNode(*runtime, Deadline(MonotonicNow(), options.formation_timeout));
    if (place.ok()) {
      options.node = place->node;
      options.host = place->host;
      group = FormCommunicator(options, rendezvous);
    } else {
      group = place.status();
    }
  }
  ThrowIfFailed(group.status());
  return PyGroup(*std::move(group));
}

}  // namespace

void BindCollective(nb::module_& module) {
  nb::class_<PyMemory>(module, "CollectiveMemory", nb::type_slots(memory_slots),
                       "Memory that the ranks of a group share; a buffer of bytes.");
  nb::class_<PyWork>(module, "CollectiveWork", "An operation that runs beside its caller.")
      .def("done", &PyWork::Done)
      .def("wait", &PyWork::Wait, nb::arg("timeout") = nb::none());
  nb::class_<PyGroup>(module, "CollectiveGroup", "One rank of a collective group.")
      .def_prop_ro("name", [](const PyGroup& group) { return group.Get()->name(); })
      .def_prop_ro("rank", [](const PyGroup& group) { return group.Get()->rank(); })
      .def_prop_ro("world_size", [](const PyGroup& group) { return group.Get()->world_size(); })
      .def_prop_ro("epoch", [](const PyGroup& group) { return group.Get()->epoch(); })
      .def("healthy", [](const PyGroup& group) { return group.Get()->Health().ok(); })
      .def("run", &PyGroup::Run, nb::arg("kind"), nb::arg("input").none(), nb::arg("output").none(),
           nb::arg("type").none(), nb::arg("op"), nb::arg("peer"), nb::arg("timeout"))
      .def("start", &PyGroup::Start, nb::arg("kind"), nb::arg("input").none(),
           nb::arg("output").none(), nb::arg("type").none(), nb::arg("op"), nb::arg("peer"),
           nb::arg("timeout"))
      .def("allocate", &PyGroup::Allocate, nb::arg("size"))
      .def(
          "abort", [](const PyGroup& group, const std::string& why) { group.Get()->Abort(why); },
          nb::arg("why"))
      .def("close", &PyGroup::Close);
  module.def("form_collective_group", &Form, nb::arg("name"), nb::arg("world_size"),
             nb::arg("rank"), nb::arg("epoch"), nb::arg("arena_bytes"), nb::arg("timeout"));
}

}  // namespace sheaf::python
