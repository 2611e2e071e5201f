// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One communicator of NCCL with the stream that its operations run in, one after the other. Nothing
// here waits: NCCL's communicator does not block, and whoever drives the lane asks again.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/nccl/cuda_library.h"
#include "collective/nccl/nccl_library.h"

namespace sheaf::nccl {

// Not thread-safe. Errors are those of Library::StatusOf and CudaLibrary::StatusOf; after one the
// lane can only be aborted.
class Lane {
 public:
  // `stream`: where operations run; none: a stream of its own, which waits for no other by itself.
  Lane(std::shared_ptr<const Library> library, std::shared_ptr<const CudaDevice> device,
       std::optional<CudaStream> stream);
  // Aborts what was not closed.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Begins to meet the other `ranks` under `id`; Ready tells when that is done.
  absl::Status Begin(const UniqueId& id, int ranks, int rank);
  // True: NCCL has done all that it was asked for (but what runs on the device).
  absl::StatusOr<bool> Ready();
  // Puts `operation`, which is not empty, into the stream, behind all that is in `after` now if the
  // stream is the lane's own. Of a barrier that is all. The lane is ready.
  absl::Status Launch(const Operation& operation, CudaStream after);
  // True: what was launched has ended on the device.
  absl::StatusOr<bool> Done();

  // The orderly end: Finish begins it, Ready tells when it is done, Close completes it.
  absl::Status Finish();
  void Close();
  // Ends what runs, on this rank, and the lane. Idempotent.
  void Abort();
  bool open() const { return comm_ != nullptr; }

 private:
  absl::Status Call(const Operation& operation);
  absl::Status Note(Result result, const char* call);
  absl::Status Cuda(int error, const char* call) const;
  void DestroyStream();

  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<const CudaDevice> device_;
  const bool own_stream_;
  CudaStream stream_ = nullptr;
  CudaEvent before_ = nullptr;  // What was in `after`.
  CudaEvent behind_ = nullptr;  // What was launched has ended.
  Comm comm_ = nullptr;
  int ranks_ = 0;
  int rank_ = 0;
  bool recorded_ = false;  // `behind_` means the last operation.
};

}  // namespace sheaf::nccl
