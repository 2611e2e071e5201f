// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/store_refusal.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "object_store/server/spill.h"
#include "object_store/store_client.h"

namespace sheaf {
namespace {

constexpr char kOutOfDiskMark[] = "sheaf/out-of-disk";

}  // namespace

absl::Status RefusalStatus(const StoreRefusal& refusal) {
  const std::string figures =
      absl::StrCat(refusal.used_bytes, " of ", refusal.capacity_bytes, " bytes in use, ",
                   refusal.pinned_bytes, " of them pinned by views");
  switch (refusal.reason) {
    case StoreRefusalReason::kOutOfDisk: {
      absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
          "the object store is full (", figures, ") and the disk it spills to is full, too: ",
          FileSpill::Options().min_free_bytes >> 20, " MiB of it stay free"));
      status.SetPayload(kOutOfDiskMark, absl::Cord());
      return status;
    }
    case StoreRefusalReason::kTooLarge:
      return absl::ResourceExhaustedError(
          absl::StrCat("the value is larger than the whole object store (", refusal.capacity_bytes,
                       " bytes); start the node with a larger one (--object-store-memory)"));
    case StoreRefusalReason::kTableFull:
      return absl::ResourceExhaustedError(
          absl::StrCat("the object store's table of objects is full (",
                       ArenaShape::For(refusal.capacity_bytes).slot_count,
                       " objects); drop references, or start the node with a larger store"));
    case StoreRefusalReason::kInvalid:
      return absl::InternalError("the raylet does not understand this request for memory");
    case StoreRefusalReason::kCancelled:
      return absl::CancelledError("the request was taken back");
    case StoreRefusalReason::kFull:
      break;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the object store is full: ", figures, "; drop references or views"));
}

ErrorKind StoreErrorKind(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ErrorKind::kNone;
    case absl::StatusCode::kResourceExhausted:
      return status.GetPayload(kOutOfDiskMark).has_value() ? ErrorKind::kOutOfDisk
                                                           : ErrorKind::kObjectStoreFull;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return ErrorKind::kObjectLost;
    default:
      return ErrorKind::kSystem;
  }
}

}  // namespace sheaf
