// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator for arrays in the memory of NVIDIA GPUs, over NCCL, which is found at run time
// (nccl_library.h; docs/nccl.md). Input and output are addresses in the memory of the rank's
// device; other addresses are kInvalidArgument. Allocate gives device memory, which each rank has
// for itself.
//
// Two planes. The ranks also form a CPU group of the same name, the control group: they meet in it,
// get NCCL's unique id through it, and before each operation compare there what they called. So a
// wrong, late, stopped or dead rank is found and named before any data moves, for collective
// operations. For kSend and kReceive the receiver compares, and the sender learns of it while its
// data waits. While data moves, each rank looks at the others' processes and pages (rank_board.h)
// and at NCCL's own errors, until the timeout: then the operation is aborted on the device too.
//
// Streams. An operation runs in a stream of the group's own, behind all that was put before the
// call into the legacy default stream (or into the stream that RunAfter and StartAfter name); or
// in the stream that was given in the options. When Run or Work::Wait has returned OK, the data is
// there for every stream. A barrier waits for what was put into that stream, then for the ranks.
//
// Not as communicator.h says: float16 and bfloat16 are reduced as NCCL does it, which may round
// more than once; whether a NaN survives kMin and kMax is NCCL's affair; averages of negative
// integers are rounded as the version of NCCL rounds them. The first kSend or kReceive with a peer
// makes a communicator of NCCL for that direction, which takes device memory and time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/nccl/cuda_library.h"
#include "collective/rendezvous.h"

namespace sheaf {

struct NcclOptions {
  CommunicatorOptions group;  // `arena_bytes` means nothing here.
  int device = 0;             // Among those that this process sees.
  // Where collective operations run. None: a stream of the group's own.
  std::optional<CudaStream> stream;
  // Folders to look in for libnccl.so.2 and libcuda.so.1, after SHEAF_NCCL_LIB and SHEAF_CUDA_LIB
  // and before the system's.
  std::vector<std::string> folders;
};

class NcclCommunicator : public Communicator {
 public:
  // Run and Start, behind all that is in the stream `after` now.
  virtual absl::Status RunAfter(const Operation& operation, CudaStream after) = 0;
  virtual std::shared_ptr<Work> StartAfter(const Operation& operation, CudaStream after) = 0;
  virtual const CudaDevice& device() const = 0;
};

// OK: NCCL, a driver and a GPU are here. Else what is missing and what to do (kNotFound), or why it
// cannot be used (kFailedPrecondition).
absl::Status NcclAvailable(const std::vector<std::string>& folders = {});

// Meets the other ranks, on this node or several, at `rendezvous`. Errors: of NcclAvailable, of
// FormCommunicator (hierarchical_communicator.h); kFailedPrecondition: ranks have different
// versions of NCCL; kInvalidArgument, kUnavailable, kInternal: of NCCL.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> NewNcclCommunicator(const NcclOptions& options,
                                                                      Rendezvous& rendezvous);
// The same with the control group `control`, which is used for nothing else. Of `options.group`
// counts what `control` does not know.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> NewNcclCommunicator(
    const NcclOptions& options, std::unique_ptr<Communicator> control);

}  // namespace sheaf
