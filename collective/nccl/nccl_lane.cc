// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_lane.h"

#include <utility>

#include "base/status_macros.h"

namespace sheaf::nccl {

Lane::Lane(std::shared_ptr<const Library> library, std::shared_ptr<const CudaDevice> device,
           std::optional<CudaStream> stream)
    : library_(std::move(library)),
      device_(std::move(device)),
      own_stream_(!stream.has_value()),
      stream_(stream.value_or(nullptr)) {}

Lane::~Lane() {
  Abort();
  DestroyStream();
}

void Lane::DestroyStream() {
  if (behind_ == nullptr) return;
  const CudaDevice::Current current(*device_);
  const CudaLibrary& cuda = device_->library();
  cuda->cuEventDestroy_v2(before_);
  cuda->cuEventDestroy_v2(behind_);
  if (own_stream_) cuda->cuStreamDestroy_v2(stream_);
  behind_ = nullptr;
}

absl::Status Lane::Cuda(int error, const char* call) const {
  return device_->library().StatusOf(error, call);
}

absl::Status Lane::Note(Result result, const char* call) {
  return library_->StatusOf(result, call);
}

absl::Status Lane::Begin(const UniqueId& id, int ranks, int rank) {
  const CudaDevice::Current current(*device_);
  const CudaLibrary& cuda = device_->library();
  ranks_ = ranks;
  rank_ = rank;
  SHEAF_RETURN_IF_ERROR(
      Cuda(cuda->cuEventCreate(&before_, kCudaEventDisableTiming), "cuEventCreate"));
  SHEAF_RETURN_IF_ERROR(
      Cuda(cuda->cuEventCreate(&behind_, kCudaEventDisableTiming), "cuEventCreate"));
  if (own_stream_) {
    SHEAF_RETURN_IF_ERROR(
        Cuda(cuda->cuStreamCreate(&stream_, kCudaStreamNonBlocking), "cuStreamCreate"));
  }
  Config config;
  return Note((*library_)->ncclCommInitRankConfig(&comm_, ranks, id, rank, &config),
              "ncclCommInitRankConfig");
}

absl::StatusOr<bool> Lane::Ready() {
  const CudaDevice::Current current(*device_);
  Result state = kSuccess;
  SHEAF_RETURN_IF_ERROR(
      Note((*library_)->ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  SHEAF_RETURN_IF_ERROR(Note(state, "NCCL's communicator"));
  return state == kSuccess;
}

absl::Status Lane::Launch(const Operation& operation, CudaStream after) {
  const CudaDevice::Current current(*device_);
  const CudaLibrary& cuda = device_->library();
  recorded_ = operation.kind == CollectiveKind::kBarrier;
  if (recorded_) {
    return Cuda(cuda->cuEventRecord(behind_, own_stream_ ? after : stream_), "cuEventRecord");
  }
  if (own_stream_) {
    SHEAF_RETURN_IF_ERROR(Cuda(cuda->cuEventRecord(before_, after), "cuEventRecord"));
    SHEAF_RETURN_IF_ERROR(Cuda(cuda->cuStreamWaitEvent(stream_, before_, 0), "cuStreamWaitEvent"));
  }
  return Call(operation);
}

absl::Status Lane::Call(const Operation& operation) {
  const Functions& nccl = *library_->operator->();
  const int type = CodeOf(operation.type);
  const int op = CodeOf(operation.op);
  const void* const input = operation.input;
  void* const output = operation.output;
  const size_t count = operation.count;
  switch (operation.kind) {
    case CollectiveKind::kBarrier:
      return absl::OkStatus();
    case CollectiveKind::kAllReduce:
      return Note(nccl.ncclAllReduce(input, output, count, type, op, comm_, stream_),
                  "ncclAllReduce");
    case CollectiveKind::kReduce:
      return Note(nccl.ncclReduce(input, output, count, type, op, operation.peer, comm_, stream_),
                  "ncclReduce");
    case CollectiveKind::kReduceScatter:
      return Note(nccl.ncclReduceScatter(input, output, count, type, op, comm_, stream_),
                  "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      return Note(nccl.ncclAllGather(input, output, count, type, comm_, stream_), "ncclAllGather");
    case CollectiveKind::kBroadcast: {
      // In place on all ranks: the root may have no output and the others no input.
      void* const array = operation.peer == rank_ ? const_cast<void*>(input) : output;
      return Note(nccl.ncclBroadcast(array, array, count, type, operation.peer, comm_, stream_),
                  "ncclBroadcast");
    }
    case CollectiveKind::kAllToAll: {
      if (nccl.ncclAlltoAll != nullptr) {
        return Note(nccl.ncclAlltoAll(input, output, count, type, comm_, stream_), "ncclAlltoAll");
      }
      SHEAF_RETURN_IF_ERROR(Note(nccl.ncclGroupStart(), "ncclGroupStart"));
      const size_t block = count * SizeOf(operation.type);
      absl::Status status;
      for (int rank = 0; rank < ranks_ && status.ok(); ++rank) {
        const size_t offset = block * static_cast<size_t>(rank);
        status = Note(nccl.ncclSend(static_cast<const std::byte*>(input) + offset, count, type,
                                    rank, comm_, stream_),
                      "ncclSend");
        if (!status.ok()) break;
        status = Note(nccl.ncclRecv(static_cast<std::byte*>(output) + offset, count, type, rank,
                                    comm_, stream_),
                      "ncclRecv");
      }
      const absl::Status end = Note(nccl.ncclGroupEnd(), "ncclGroupEnd");
      return status.ok() ? end : status;
    }
    case CollectiveKind::kSend:
      return Note(nccl.ncclSend(input, count, type, operation.peer, comm_, stream_), "ncclSend");
    case CollectiveKind::kReceive:
      return Note(nccl.ncclRecv(output, count, type, operation.peer, comm_, stream_), "ncclRecv");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Lane::Done() {
  // What runs on the device tells of a lost network only here.
  SHEAF_ASSIGN_OR_RETURN(const bool ready, Ready());
  if (!ready) return false;
  const CudaDevice::Current current(*device_);
  const CudaLibrary& cuda = device_->library();
  if (!recorded_) {  // Not earlier: until NCCL is ready the operation may not be in the stream.
    SHEAF_RETURN_IF_ERROR(Cuda(cuda->cuEventRecord(behind_, stream_), "cuEventRecord"));
    recorded_ = true;
  }
  const int state = cuda->cuEventQuery(behind_);
  if (state == kCudaNotReady) return false;
  SHEAF_RETURN_IF_ERROR(Cuda(state, "cuEventQuery"));
  return true;
}

absl::Status Lane::Finish() {
  const CudaDevice::Current current(*device_);
  return Note((*library_)->ncclCommFinalize(comm_), "ncclCommFinalize");
}

void Lane::Close() {
  if (comm_ == nullptr) return;
  const CudaDevice::Current current(*device_);
  (*library_)->ncclCommDestroy(std::exchange(comm_, nullptr));
}

void Lane::Abort() {
  if (comm_ == nullptr) return;
  const CudaDevice::Current current(*device_);
  (*library_)->ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace sheaf::nccl
