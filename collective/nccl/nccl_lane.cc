// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_lane.h"

#include <utility>

#include "base/status_macros.h"

namespace sheaf::nccl {
namespace {

constexpr Nanos kAbortTime = 5 * kSecond;  // For NCCL to leave a call, or to abort.

// Of more sorts the first are forgotten, and called with care once more.
constexpr size_t kMostSorts = 10'000;

}  // namespace

Lane::Lane(std::shared_ptr<const Library> library, std::shared_ptr<const CudaDevice> device,
           std::optional<CudaStream> stream)
    : own_stream_(!stream.has_value()) {
  port_.library = std::move(library);
  port_.device = std::move(device);
  port_.stream = stream.value_or(nullptr);
}

Lane::~Lane() {
  Abort();
  DestroyStream();
}

void Lane::DestroyStream() {
  if (behind_ == nullptr || left_) return;
  const CudaDevice::Current current(*port_.device);
  const CudaLibrary& cuda = port_.device->library();
  cuda->cuEventDestroy_v2(before_);
  cuda->cuEventDestroy_v2(behind_);
  if (own_stream_) cuda->cuStreamDestroy_v2(port_.stream);
  behind_ = nullptr;
}

absl::Status Lane::Cuda(int error, const char* call) const {
  return port_.device->library().StatusOf(error, call);
}

absl::Status Lane::Note(Result result, const char* call) const {
  return port_.library->StatusOf(result, call);
}

absl::Status Lane::Begin(const UniqueId& id, int ranks, int rank) {
  const CudaDevice::Current current(*port_.device);
  const CudaLibrary& cuda = port_.device->library();
  port_.ranks = ranks;
  port_.rank = rank;
  SHEAF_RETURN_IF_ERROR(
      Cuda(cuda->cuEventCreate(&before_, kCudaEventDisableTiming), "cuEventCreate"));
  SHEAF_RETURN_IF_ERROR(
      Cuda(cuda->cuEventCreate(&behind_, kCudaEventDisableTiming), "cuEventCreate"));
  if (own_stream_) {
    SHEAF_RETURN_IF_ERROR(
        Cuda(cuda->cuStreamCreate(&port_.stream, kCudaStreamNonBlocking), "cuStreamCreate"));
  }
  Config config;
  config.blocking = 0;
  return Note((*port_.library)->ncclCommInitRankConfig(&met_, ranks, id, rank, &config),
              "ncclCommInitRankConfig");
}

absl::StatusOr<bool> Lane::Settled(Comm comm) const {
  Result state = kSuccess;
  SHEAF_RETURN_IF_ERROR(
      Note((*port_.library)->ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
  SHEAF_RETURN_IF_ERROR(Note(state, "NCCL's communicator"));
  return state == kSuccess;
}

absl::StatusOr<bool> Lane::Ready() {
  if (call_ != nullptr) {
    if (!call_->Returned()) return false;
    SHEAF_RETURN_IF_ERROR(call_->status());
    call_.reset();
    if (step_ == Step::kFinishing) port_.comm = nullptr;
    if (connected_.size() >= kMostSorts) connected_.clear();
    connected_.insert(connecting_);
  }
  const CudaDevice::Current current(*port_.device);
  SHEAF_ASSIGN_OR_RETURN(const bool settled, Settled(step_ == Step::kOpen ? port_.comm : met_));
  if (!settled || step_ == Step::kOpen || step_ == Step::kFinishing) return settled;
  if (step_ == Step::kMeeting && blocks()) {
    step_ = Step::kSplitting;
    Config config;
    config.blocking = 1;
    SHEAF_RETURN_IF_ERROR(
        Note((*port_.library)
                 ->ncclCommSplit(met_, /*color=*/0, /*key=*/port_.rank, &port_.comm, &config),
             "ncclCommSplit"));
    return false;
  }
  if (step_ == Step::kMeeting) port_.comm = met_;
  step_ = Step::kOpen;
  return true;
}

absl::Status Lane::Launch(const Operation& operation, CudaStream after) {
  const CudaDevice::Current current(*port_.device);
  const CudaLibrary& cuda = port_.device->library();
  recorded_ = operation.kind == CollectiveKind::kBarrier;
  if (recorded_) {
    return Cuda(cuda->cuEventRecord(behind_, own_stream_ ? after : port_.stream), "cuEventRecord");
  }
  if (own_stream_) {
    SHEAF_RETURN_IF_ERROR(Cuda(cuda->cuEventRecord(before_, after), "cuEventRecord"));
    SHEAF_RETURN_IF_ERROR(
        Cuda(cuda->cuStreamWaitEvent(port_.stream, before_, 0), "cuStreamWaitEvent"));
  }
  connecting_ = {operation.kind, operation.type, operation.op, operation.count};
  if (!blocks() || connected_.contains(connecting_)) return port_.Call(operation);
  call_ =
      std::make_unique<BlockingCall>([port = port_, operation] { return port.Call(operation); });
  return absl::OkStatus();
}

absl::StatusOr<bool> Lane::Done() {
  // What runs on the device tells of a lost network only here.
  SHEAF_ASSIGN_OR_RETURN(const bool ready, Ready());
  if (!ready) return false;
  const CudaDevice::Current current(*port_.device);
  const CudaLibrary& cuda = port_.device->library();
  if (!recorded_) {  // Not earlier: until NCCL is ready the operation may not be in the stream.
    SHEAF_RETURN_IF_ERROR(Cuda(cuda->cuEventRecord(behind_, port_.stream), "cuEventRecord"));
    recorded_ = true;
  }
  const int state = cuda->cuEventQuery(behind_);
  if (state == kCudaNotReady) return false;
  SHEAF_RETURN_IF_ERROR(Cuda(state, "cuEventQuery"));
  return true;
}

absl::Status Lane::Finish() {
  const CudaDevice::Current current(*port_.device);
  if (blocks() && port_.comm != nullptr) {
    call_ = std::make_unique<BlockingCall>([port = port_]() -> absl::Status {
      const CudaDevice::Current in_thread(*port.device);
      const Functions& nccl = *port.library->operator->();
      const absl::Status status =
          port.library->StatusOf(nccl.ncclCommFinalize(port.comm), "ncclCommFinalize");
      if (!status.ok()) {
        nccl.ncclCommAbort(port.comm);
        return status;
      }
      return port.library->StatusOf(nccl.ncclCommDestroy(port.comm), "ncclCommDestroy");
    });
    if (absl::IsResourceExhausted(call_->status())) return call_->status();  // It did not run.
  }
  step_ = Step::kFinishing;
  return Note((*port_.library)->ncclCommFinalize(met_), "ncclCommFinalize");
}

void Lane::Close() {
  if (met_ == nullptr) return;
  const CudaDevice::Current current(*port_.device);
  port_.comm = nullptr;
  (*port_.library)->ncclCommDestroy(std::exchange(met_, nullptr));
}

void Lane::Abort() {
  if (met_ == nullptr) return;
  const CudaDevice::Current current(*port_.device);
  const bool splitting = step_ == Step::kSplitting;
  if (blocks() && !splitting) AbortPort();
  (*port_.library)->ncclCommAbort(std::exchange(met_, nullptr));
  // `met_` writes into what it splits off until it is aborted, and hands that out even then.
  if (splitting) AbortPort();
  port_.comm = nullptr;
}

void Lane::AbortPort() {
  if (port_.comm == nullptr) return;
  const auto in_thread = [this](auto function) {
    return BlockingCall([port = port_, function]() -> absl::Status {
      const CudaDevice::Current current(*port.device);
      function(port);
      return absl::OkStatus();
    });
  };
  if (step_ == Step::kFinishing) {  // The call frees it.
    left_ = !call_->Returned(kAbortTime);
    return;
  }
  if (call_ != nullptr && !call_->Returned() && (*port_.library)->ncclCommRevoke != nullptr) {
    // NCCL frees what it aborts, also under a call: the call ends first where NCCL can do that.
    const BlockingCall revoke =
        in_thread([](const Port& port) { (*port.library)->ncclCommRevoke(port.comm, 0); });
    revoke.Returned(kAbortTime);
    left_ = !call_->Returned(kAbortTime);
    if (left_) return;
  }
  const BlockingCall abort =
      in_thread([](const Port& port) { (*port.library)->ncclCommAbort(port.comm); });
  left_ = !abort.Returned(kAbortTime) || (call_ != nullptr && !call_->Returned(kAbortTime));
  // No thread could be had. Where no call hangs, NCCL has nothing to wait for.
  if (!left_ && absl::IsResourceExhausted(abort.status())) {
    (*port_.library)->ncclCommAbort(port_.comm);
  }
}

}  // namespace sheaf::nccl
