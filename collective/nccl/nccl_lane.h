// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One communicator of NCCL with the stream that its operations run in, one after the other. Nothing
// here waits for another rank, but what ends it: whoever drives the lane asks again.
//
// A communicator that does not block can be given up at any time, but starts a thread for each
// operation (100 us on an H200); one that blocks is as fast as NCCL, but waits inside of a call, at
// its forming and wherever it has to connect to other ranks. So the ranks meet in one that does not
// block, which is split into one that does, for the operations. The first operation of each sort
// (kind, type, reduction, size), which may connect, is called in a thread of its own
// (blocking_call.h); later ones are called directly: all that they do is put work into the stream.
// One rank, which waits for nobody, uses the one that does not block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/nccl/blocking_call.h"
#include "collective/nccl/cuda_library.h"
#include "collective/nccl/nccl_library.h"
#include "collective/nccl/nccl_port.h"

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
  // Ends what runs, on this rank, and the lane. Idempotent. Takes seconds where NCCL does not heed
  // it; what then still hangs is left alone, with its memory.
  void Abort();
  bool open() const { return met_ != nullptr; }

 private:
  enum class Step { kMeeting, kSplitting, kOpen, kFinishing };
  // By what NCCL chooses how to move the data, and with it which ranks it connects.
  using Sort = std::tuple<CollectiveKind, DataType, ReduceOp, size_t>;

  bool blocks() const { return port_.ranks > 1; }
  absl::StatusOr<bool> Settled(Comm comm) const;
  absl::Status Note(Result result, const char* call) const;
  absl::Status Cuda(int error, const char* call) const;
  void AbortPort();
  void DestroyStream();

  const bool own_stream_;
  Step step_ = Step::kMeeting;
  Comm met_ = nullptr;  // Where the ranks met: it does not block.
  Port port_;           // Where operations go: `met_` itself where there is one rank.
  std::unique_ptr<BlockingCall> call_;   // Into `port_`, and not known to have returned.
  absl::flat_hash_set<Sort> connected_;  // What `port_` has done.
  Sort connecting_;                      // That of `call_`.
  CudaEvent before_ = nullptr;           // What was in `after`.
  CudaEvent behind_ = nullptr;           // What was launched has ended.
  bool recorded_ = false;                // `behind_` means the last operation.
  bool left_ = false;                    // A call hangs, which may use the stream.
};

}  // namespace sheaf::nccl
