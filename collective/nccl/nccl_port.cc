// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_port.h"

#include "base/status_macros.h"

namespace sheaf::nccl {

absl::Status Port::Call(const Operation& operation) const {
  const CudaDevice::Current current(*device);
  const Functions& nccl = *library->operator->();
  const int type = CodeOf(operation.type);
  const int op = CodeOf(operation.op);
  const void* const input = operation.input;
  void* const output = operation.output;
  const size_t count = operation.count;
  switch (operation.kind) {
    case CollectiveKind::kBarrier:
      return absl::OkStatus();
    case CollectiveKind::kAllReduce:
      return Note(nccl.ncclAllReduce(input, output, count, type, op, comm, stream),
                  "ncclAllReduce");
    case CollectiveKind::kReduce:
      return Note(nccl.ncclReduce(input, output, count, type, op, operation.peer, comm, stream),
                  "ncclReduce");
    case CollectiveKind::kReduceScatter:
      return Note(nccl.ncclReduceScatter(input, output, count, type, op, comm, stream),
                  "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      return Note(nccl.ncclAllGather(input, output, count, type, comm, stream), "ncclAllGather");
    case CollectiveKind::kBroadcast: {
      // In place on all ranks: the root may have no output and the others no input.
      void* const array = operation.peer == rank ? const_cast<void*>(input) : output;
      return Note(nccl.ncclBroadcast(array, array, count, type, operation.peer, comm, stream),
                  "ncclBroadcast");
    }
    case CollectiveKind::kAllToAll:
      if (nccl.ncclAlltoAll == nullptr) return Exchange(operation);
      return Note(nccl.ncclAlltoAll(input, output, count, type, comm, stream), "ncclAlltoAll");
    case CollectiveKind::kSend:
      return Note(nccl.ncclSend(input, count, type, operation.peer, comm, stream), "ncclSend");
    case CollectiveKind::kReceive:
      return Note(nccl.ncclRecv(output, count, type, operation.peer, comm, stream), "ncclRecv");
  }
  return absl::OkStatus();
}

// All-to-all before NCCL 2.28.
absl::Status Port::Exchange(const Operation& operation) const {
  const Functions& nccl = *library->operator->();
  const int type = CodeOf(operation.type);
  const size_t count = operation.count;
  const auto* const input = static_cast<const std::byte*>(operation.input);
  auto* const output = static_cast<std::byte*>(operation.output);
  const size_t block = count * SizeOf(operation.type);
  SHEAF_RETURN_IF_ERROR(Note(nccl.ncclGroupStart(), "ncclGroupStart"));
  absl::Status status;
  for (int peer = 0; peer < ranks && status.ok(); ++peer) {
    const size_t offset = block * static_cast<size_t>(peer);
    status = Note(nccl.ncclSend(input + offset, count, type, peer, comm, stream), "ncclSend");
    if (!status.ok()) break;
    status = Note(nccl.ncclRecv(output + offset, count, type, peer, comm, stream), "ncclRecv");
  }
  const absl::Status end = Note(nccl.ncclGroupEnd(), "ncclGroupEnd");
  return status.ok() ? end : status;
}

}  // namespace sheaf::nccl
