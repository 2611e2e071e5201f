// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where operations enter NCCL: one communicator and the stream that they run in.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "collective/communicator.h"
#include "collective/nccl/cuda_library.h"
#include "collective/nccl/nccl_library.h"

namespace sheaf::nccl {

// A value: whoever calls in another thread takes a copy. One thread at a time calls.
struct Port {
  std::shared_ptr<const Library> library;
  std::shared_ptr<const CudaDevice> device;
  Comm comm = nullptr;
  CudaStream stream = nullptr;
  int ranks = 0;
  int rank = 0;

  // Puts `operation`, which is no barrier, into the stream. A communicator that blocks may wait
  // here for the other ranks, where it has not yet done one like it. Errors: of Library::StatusOf.
  absl::Status Call(const Operation& operation) const;

 private:
  absl::Status Exchange(const Operation& operation) const;
  absl::Status Note(Result result, const char* call) const {
    return library->StatusOf(result, call);
  }
};

}  // namespace sheaf::nccl
