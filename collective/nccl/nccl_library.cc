// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_library.h"

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status_macros.h"
#include "collective/nccl/dynamic_library.h"

namespace sheaf::nccl {
namespace {

constexpr char kRemedy[] =
    "Install it (pip install nvidia-nccl-cu13, or the system's package), or set SHEAF_NCCL_LIB to "
    "the path of libnccl.so.2";

}  // namespace

std::string VersionText(int version) {
  // NCCL counted otherwise up to 2.8.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

absl::StatusOr<std::shared_ptr<const Library>> Library::Load(
    const std::vector<std::string>& folders) {
  SHEAF_ASSIGN_OR_RETURN(const DynamicLibrary file,
                         DynamicLibrary::Find({"NCCL", "libnccl.so.2", "SHEAF_NCCL_LIB",
                                               NamedLibraries().nccl, folders, kRemedy}));
  auto library = std::make_shared<Library>();
  library->path_ = file.path();
  Functions& functions = library->functions_;
  const std::string want = absl::StrCat("NCCL ", VersionText(kOldest), " or later. ", kRemedy);
  // The version first: an old library is called old, not incomplete.
  SHEAF_RETURN_IF_ERROR(file.Load("ncclGetVersion", want, functions.ncclGetVersion));
  if (functions.ncclGetVersion(&library->version_) != kSuccess || library->version_ < kOldest) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), " is NCCL ", VersionText(library->version_), ": want ", want));
  }
#define SHEAF_LOAD(name) SHEAF_RETURN_IF_ERROR(file.Load(#name, want, functions.name))
  SHEAF_LOAD(ncclGetErrorString);
  SHEAF_LOAD(ncclGetLastError);
  SHEAF_LOAD(ncclGetUniqueId);
  SHEAF_LOAD(ncclCommInitRankConfig);
  SHEAF_LOAD(ncclCommSplit);
  SHEAF_LOAD(ncclCommFinalize);
  SHEAF_LOAD(ncclCommDestroy);
  SHEAF_LOAD(ncclCommAbort);
  SHEAF_LOAD(ncclCommGetAsyncError);
  SHEAF_LOAD(ncclAllReduce);
  SHEAF_LOAD(ncclReduce);
  SHEAF_LOAD(ncclReduceScatter);
  SHEAF_LOAD(ncclAllGather);
  SHEAF_LOAD(ncclBroadcast);
  SHEAF_LOAD(ncclSend);
  SHEAF_LOAD(ncclRecv);
  SHEAF_LOAD(ncclGroupStart);
  SHEAF_LOAD(ncclGroupEnd);
#undef SHEAF_LOAD
  if (!file.Load("ncclAlltoAll", want, functions.ncclAlltoAll).ok())
    functions.ncclAlltoAll = nullptr;
  if (!file.Load("ncclCommRevoke", want, functions.ncclCommRevoke).ok())
    functions.ncclCommRevoke = nullptr;
  return library;
}

absl::Status Library::StatusOf(Result result, const char* call) const {
  if (result == kSuccess || result == kInProgress) return absl::OkStatus();
  const char* last = functions_.ncclGetLastError(nullptr);
  const std::string words =
      absl::StrCat(call, ": ", functions_.ncclGetErrorString(result),
                   last != nullptr && *last != 0 ? absl::StrCat(": ", last) : "");
  switch (result) {
    case kInvalidArgument:
    case kInvalidUsage:
      return absl::InvalidArgumentError(words);
    case kSystemError:
    case kRemoteError:
      return absl::UnavailableError(words);
    default:
      return absl::InternalError(words);
  }
}

}  // namespace sheaf::nccl
