// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/collective.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/nccl/nccl_communicator.h"
#include "collective/net/hierarchical_communicator.h"
#include "object_store/machine_memory.h"
#include "python_bindings/core/process.h"
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

// An array in a GPU's memory; holds what it lies in.
struct DeviceArray {
  uintptr_t pointer = 0;
  size_t size = 0;
  uintptr_t stream = 0;  // In which its last work is.
  nb::object owner;
  std::shared_ptr<std::byte> memory;  // Of a group.
};

// The bytes of an object with the buffer protocol, or of a DeviceArray, held as long as this lives.
class Bytes {
 public:
  Bytes() = default;
  Bytes(nb::handle object, bool writable) {
    if (nb::isinstance<DeviceArray>(object)) {
      const DeviceArray& array = nb::cast<const DeviceArray&>(object);
      owner_ = nb::borrow(object);
      view_.buf = reinterpret_cast<void*>(array.pointer);
      view_.len = static_cast<Py_ssize_t>(array.size);
      stream_ = reinterpret_cast<CudaStream>(array.stream);
      return;
    }
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    held_ = true;
  }
  Bytes(Bytes&& other) noexcept
      : view_(other.view_),
        held_(std::exchange(other.held_, false)),
        owner_(std::move(other.owner_)),
        stream_(other.stream_) {}
  Bytes& operator=(Bytes&&) = delete;
  ~Bytes() {
    if (held_) PyBuffer_Release(&view_);
  }
  void* data() const { return held() ? view_.buf : nullptr; }
  size_t size() const { return held() ? static_cast<size_t>(view_.len) : 0; }
  bool held() const { return held_ || on_device(); }
  bool on_device() const { return owner_.is_valid(); }
  CudaStream stream() const { return stream_; }
  // By its format; none: no type that is reduced.
  std::optional<DataType> type() const {
    if (on_device()) return std::nullopt;
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
  nb::object owner_;  // Of an array on a device.
  CudaStream stream_ = nullptr;
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
  explicit PyGroup(std::unique_ptr<NcclCommunicator> group)
      : nccl_(group.get()), group_(std::move(group)) {}
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
    for (const Bytes* array : {&call.input, &call.output}) {
      if (array->held() && array->on_device() != (nccl_ != nullptr)) {
        throw nb::type_error(nccl_ != nullptr ? "the group wants arrays in its GPU's memory"
                                              : "the group wants arrays in the CPU's memory");
      }
    }
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
      status = nccl_ != nullptr ? nccl_->RunAfter(call.operation, StreamOf(call))
                                : group->Run(call.operation);
    }
    ThrowIfFailed(status);
  }

  PyWork Start(int kind, nb::handle input, nb::handle output, std::optional<std::string> type,
               int op, int peer, double timeout) const {
    Call call = Prepare(kind, input, output, type, op, peer, timeout);
    const std::shared_ptr<Communicator> group = Get();
    std::shared_ptr<Work> work = nccl_ != nullptr
                                     ? nccl_->StartAfter(call.operation, StreamOf(call))
                                     : group->Start(call.operation);
    return PyWork(std::move(work), std::move(call));
  }

  PyMemory Allocate(size_t size) const {
    absl::StatusOr<std::shared_ptr<std::byte>> memory = Get()->Allocate(size);
    ThrowIfFailed(memory.status());
    return PyMemory(*std::move(memory), size);
  }

  DeviceArray AllocateDevice(size_t size) const {
    absl::StatusOr<std::shared_ptr<std::byte>> memory = Get()->Allocate(size);
    ThrowIfFailed(memory.status());
    const auto pointer = reinterpret_cast<uintptr_t>(memory->get());
    return DeviceArray{pointer, size, 0, nb::none(), *std::move(memory)};
  }

 private:
  static CudaStream StreamOf(const Call& call) {
    return call.input.held() ? call.input.stream() : call.output.stream();
  }

  NcclCommunicator* nccl_ = nullptr;  // What group_ is, for arrays on GPUs.
  std::shared_ptr<Communicator> group_;
};

CommunicatorOptions OptionsOf(const std::string& name, int world_size, int rank, uint64_t epoch,
                              size_t arena_bytes, double timeout) {
  return {
      .name = name,
      .rank = rank,
      .world_size = world_size,
      .epoch = epoch,
      .arena_bytes = arena_bytes,
      .check_memory = &CheckMemoryFor,
      .formation_timeout = NanosOf(timeout),
      .node = {},
      .interrupted = IsWorker() ? &WorkerInterrupted : &DriverInterrupted,
  };
}

// Puts into `options` where this rank is.
absl::Status FindPlace(Runtime& runtime, CommunicatorOptions& options) {
  const absl::StatusOr<CollectivePlace> place =
      PlaceOfThisNode(runtime, Deadline(MonotonicNow(), options.formation_timeout));
  if (!place.ok()) return place.status();
  options.node = place->node;
  options.host = place->host;
  return absl::OkStatus();
}

PyGroup Form(const std::string& name, int world_size, int rank, uint64_t epoch, size_t arena_bytes,
             double timeout) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) throw nb::python_error();
  CommunicatorOptions options = OptionsOf(name, world_size, rank, epoch, arena_bytes, timeout);
  const RuntimeInUse in_use;
  absl::StatusOr<std::unique_ptr<Communicator>> group;
  {
    const WithoutGil free;
    GcsRendezvous rendezvous(*runtime, name);
    const absl::Status found = FindPlace(*runtime, options);
    group = found.ok() ? FormCommunicator(options, rendezvous) : found;
  }
  ThrowIfFailed(group.status());
  return PyGroup(*std::move(group));
}

PyGroup FormNccl(const std::string& name, int world_size, int rank, uint64_t epoch, double timeout,
                 int device, const std::vector<std::string>& folders) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) throw nb::python_error();
  NcclOptions options;
  options.group = OptionsOf(name, world_size, rank, epoch, /*arena_bytes=*/0, timeout);
  options.device = device;
  options.folders = folders;
  const RuntimeInUse in_use;
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> group;
  {
    const WithoutGil free;
    GcsRendezvous rendezvous(*runtime, name);
    const absl::Status found = FindPlace(*runtime, options.group);
    group = found.ok() ? NewNcclCommunicator(options, rendezvous) : found;
  }
  ThrowIfFailed(group.status());
  return PyGroup(*std::move(group));
}

std::string WhyNoNccl(const std::vector<std::string>& folders) {
  const WithoutGil free;
  const absl::Status status = NcclAvailable(folders);
  return status.ok() ? std::string() : std::string(status.message());
}

}  // namespace

void BindCollective(nb::module_& module) {
  nb::class_<PyMemory>(module, "CollectiveMemory", nb::type_slots(memory_slots),
                       "Memory that the ranks of a group share; a buffer of bytes.");
  nb::class_<DeviceArray>(module, "DeviceArray", "An array in a GPU's memory, for a group.")
      .def(
          "__init__",
          [](DeviceArray* self, uintptr_t pointer, size_t size, uintptr_t stream,
             nb::object owner) {
            new (self) DeviceArray{pointer, size, stream, std::move(owner), nullptr};
          },
          nb::arg("pointer"), nb::arg("size"), nb::arg("stream"), nb::arg("owner").none())
      .def_ro("pointer", &DeviceArray::pointer)
      .def_ro("size", &DeviceArray::size);
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
      .def("allocate_device", &PyGroup::AllocateDevice, nb::arg("size"))
      .def(
          "abort", [](const PyGroup& group, const std::string& why) { group.Get()->Abort(why); },
          nb::arg("why"))
      .def("close", &PyGroup::Close);
  module.def("form_collective_group", &Form, nb::arg("name"), nb::arg("world_size"),
             nb::arg("rank"), nb::arg("epoch"), nb::arg("arena_bytes"), nb::arg("timeout"));
  module.def("form_nccl_group", &FormNccl, nb::arg("name"), nb::arg("world_size"), nb::arg("rank"),
             nb::arg("epoch"), nb::arg("timeout"), nb::arg("device"), nb::arg("folders"));
  module.def("nccl_unavailable", &WhyNoNccl, nb::arg("folders"));
}

}  // namespace sheaf::python
