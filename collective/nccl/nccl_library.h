// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// NCCL, found and loaded when it is first needed. No header of it is needed to build: what follows
// from its stable binary interface is declared here, and tests/nccl compares it with the header of
// NCCL's wheel.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "collective/nccl/cuda_library.h"

namespace sheaf::nccl {

using Comm = struct ncclComm*;

struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == 128);

// The part of ncclConfig_t that every NCCL since 2.14 has: `size` and `version` say that it is
// this old, and NCCL takes its defaults for what came later.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
static_assert(sizeof(Config) == 24 && offsetof(Config, blocking) == 16);

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t and ncclRedOp_t.
constexpr int CodeOf(DataType type) {
  constexpr int kCodes[kDataTypes] = {1, 2, 4, 6, 9, 7, 8};
  return kCodes[static_cast<int>(type)];
}
constexpr int CodeOf(ReduceOp op) {
  constexpr int kCodes[kReduceOps] = {0, 1, 3, 2, 4};
  return kCodes[static_cast<int>(op)];
}

// NCCL's functions under their exported names.
struct Functions {
  Result (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(Result result);
  const char* (*ncclGetLastError)(Comm comm);
  Result (*ncclGetUniqueId)(UniqueId* id);
  Result (*ncclCommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  // A communicator of the ranks that say the same `color`, in the order of `key`.
  Result (*ncclCommSplit)(Comm comm, int color, int key, Comm* child, Config* config);
  Result (*ncclCommFinalize)(Comm comm);
  Result (*ncclCommDestroy)(Comm comm);
  Result (*ncclCommAbort)(Comm comm);
  Result (*ncclCommGetAsyncError)(Comm comm, Result* error);
  Result (*ncclAllReduce)(const void* input, void* output, size_t count, int type, int op,
                          Comm comm, CudaStream stream);
  Result (*ncclReduce)(const void* input, void* output, size_t count, int type, int op, int root,
                       Comm comm, CudaStream stream);
  Result (*ncclReduceScatter)(const void* input, void* output, size_t count, int type, int op,
                              Comm comm, CudaStream stream);
  Result (*ncclAllGather)(const void* input, void* output, size_t count, int type, Comm comm,
                          CudaStream stream);
  Result (*ncclBroadcast)(const void* input, void* output, size_t count, int type, int root,
                          Comm comm, CudaStream stream);
  Result (*ncclSend)(const void* input, size_t count, int type, int peer, Comm comm,
                     CudaStream stream);
  Result (*ncclRecv)(void* output, size_t count, int type, int peer, Comm comm, CudaStream stream);
  // nullptr before NCCL 2.28, which has no such call: sends and receives in a group do it there.
  Result (*ncclAlltoAll)(const void* input, void* output, size_t count, int type, Comm comm,
                         CudaStream stream);
  Result (*ncclGroupStart)();
  Result (*ncclGroupEnd)();
  // Ends what runs, and what is being called, but leaves the communicator. nullptr before NCCL 2.29.
  Result (*ncclCommRevoke)(Comm comm, int flags);
};

// Thread-safe.
class Library {
 public:
  // 2.18: communicators that do not block have worked well since then.
  static constexpr int kOldest = 21800;

  // `folders`: where to look after SHEAF_NCCL_LIB and before the system. Needs no GPU.
  // kNotFound: there is none. kFailedPrecondition: it cannot be used: a missing symbol, too old, or
  // not NCCL. The message names the file, the symbol and the remedy.
  static absl::StatusOr<std::shared_ptr<const Library>> Load(
      const std::vector<std::string>& folders = {});

  const Functions* operator->() const { return &functions_; }
  const std::string& path() const { return path_; }
  int version() const { return version_; }  // 23203
  // OK for kSuccess and kInProgress, else what `result`, which `call` returned, means:
  // kInvalidArgument: a wrong call. kUnavailable: another rank or the network failed. kInternal:
  // all others. With NCCL's own last words.
  absl::Status StatusOf(Result result, const char* call) const;

 private:
  Functions functions_{};
  std::string path_;
  int version_ = 0;
};

// "2.32.3".
std::string VersionText(int version);

}  // namespace sheaf::nccl
