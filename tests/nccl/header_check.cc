// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Compiles only if collective/nccl/nccl_library.h declares what NCCL's own header does.
#include <nccl.h>

#include <type_traits>

#include "collective/nccl/nccl_library.h"

namespace sheaf::nccl {

// The types of NCCL's header as nccl_library.h has them.
template <class T>
struct Plain {
  using Type = T;
};
template <>
struct Plain<ncclResult_t> {
  using Type = Result;
};
template <>
struct Plain<ncclResult_t*> {
  using Type = Result*;
};
template <>
struct Plain<ncclUniqueId> {
  using Type = UniqueId;
};
template <>
struct Plain<ncclUniqueId*> {
  using Type = UniqueId*;
};
template <>
struct Plain<ncclConfig_t*> {
  using Type = Config*;
};
template <>
struct Plain<ncclDataType_t> {
  using Type = int;
};
template <>
struct Plain<ncclRedOp_t> {
  using Type = int;
};
template <>
struct Plain<cudaStream_t> {
  using Type = CudaStream;
};
template <class Function>
struct PlainFunction;
template <class R, class... A>
struct PlainFunction<R (*)(A...)> {
  using Type = typename Plain<R>::Type (*)(typename Plain<A>::Type...);
};

#define SAME(name) \
  static_assert(   \
      std::is_same_v<typename PlainFunction<decltype(&::name)>::Type, decltype(Functions::name)>)
// Comm is a pointer to a struct of our namespace.
template <>
struct Plain<ncclComm_t> {
  using Type = Comm;
};
template <>
struct Plain<ncclComm_t*> {
  using Type = Comm*;
};
SAME(ncclGetVersion);
SAME(ncclGetErrorString);
SAME(ncclGetLastError);
SAME(ncclGetUniqueId);
SAME(ncclCommInitRankConfig);
SAME(ncclCommSplit);
SAME(ncclCommFinalize);
SAME(ncclCommDestroy);
SAME(ncclCommAbort);
SAME(ncclCommGetAsyncError);
SAME(ncclAllReduce);
SAME(ncclReduce);
SAME(ncclReduceScatter);
SAME(ncclAllGather);
SAME(ncclBroadcast);
SAME(ncclSend);
SAME(ncclRecv);
SAME(ncclAlltoAll);
SAME(ncclGroupStart);
SAME(ncclGroupEnd);
SAME(ncclCommRevoke);

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && alignof(ncclUniqueId) == 1);
static_assert(sizeof(ncclResult_t) == sizeof(Result) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(Config, magic) &&
              offsetof(ncclConfig_t, version) == offsetof(Config, version) &&
              offsetof(ncclConfig_t, blocking) == offsetof(Config, blocking) &&
              Config().magic == NCCL_API_MAGIC && Config().version == NCCL_VERSION(2, 14, 0));
static_assert(ncclSuccess + 0 == kSuccess + 0 && ncclSystemError + 0 == kSystemError + 0 &&
              ncclInvalidUsage + 0 == kInvalidUsage + 0 &&
              ncclRemoteError + 0 == kRemoteError + 0 && ncclInProgress + 0 == kInProgress + 0);
static_assert(CodeOf(DataType::kUint8) == ncclUint8 && CodeOf(DataType::kInt32) == ncclInt32 &&
              CodeOf(DataType::kInt64) == ncclInt64 && CodeOf(DataType::kFloat16) == ncclFloat16 &&
              CodeOf(DataType::kBfloat16) == ncclBfloat16 &&
              CodeOf(DataType::kFloat32) == ncclFloat32 &&
              CodeOf(DataType::kFloat64) == ncclFloat64);
static_assert(CodeOf(ReduceOp::kSum) == ncclSum && CodeOf(ReduceOp::kProduct) == ncclProd &&
              CodeOf(ReduceOp::kMin) == ncclMin && CodeOf(ReduceOp::kMax) == ncclMax &&
              CodeOf(ReduceOp::kAverage) == ncclAvg);
static_assert(Library::kOldest == NCCL_VERSION(2, 18, 0));

}  // namespace sheaf::nccl
