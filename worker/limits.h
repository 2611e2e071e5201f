// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much travels inside the frames between owners, workers and the GCS. What exceeds it goes by
// the object store where it can; where it cannot, the call ends in an error that names the size,
// the limit and what to do. So no frame comes near kMaxBodyBytes (base/message_limits.h).
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/message_limits.h"

namespace sheaf {

// Values up to here stay in this process until their reference leaves it, and travel in frames.
inline constexpr size_t kInlineValue = 64 * 1024;
// All arguments of a call, or all of its results, in one frame.
inline constexpr size_t kInlineSum = 1024 * 1024;
// Arguments and results of one call.
inline constexpr size_t kMaxArguments = 500'000;
inline constexpr size_t kMaxReturns = 60'000;
// References inside one value: they travel beside it, 32 bytes each.
inline constexpr size_t kMaxNested = 500'000;
// What is the same for all calls of a function; of it what says where they may run. Each node of
// the cluster may hear of the latter.
inline constexpr size_t kMaxTemplateBytes = 16 * 1024 * 1024;
inline constexpr size_t kMaxPlacementBytes = 1024 * 1024;
inline constexpr size_t kMaxNameBytes = 1024 * 1024;
inline constexpr size_t kMaxGroupBytes = 8 * 1024 * 1024;  // Of a placement group.
// The GCS keeps the arguments of a detached actor's constructor, on disk and in memory.
inline constexpr size_t kMaxDetachedArguments = 12 * 1024 * 1024;
// Of an exception: the words for people, and its own pickled form.
inline constexpr size_t kMaxErrorWords = 1024 * 1024;
inline constexpr size_t kMaxErrorPayload = 40 * 1024 * 1024;
// Frames that grow with what a user gives, as a whole.
inline constexpr size_t kMaxSentBytes = kMaxBodyBytes - kRoomForHeads;

inline absl::Status TooLarge(absl::string_view what, size_t bytes, size_t limit,
                             absl::string_view remedy) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is too large: ", bytes, " bytes, at most ", limit, "; ", remedy));
}

// kInvalidArgument: a value with so many references inside cannot be sent.
inline absl::Status CheckNested(size_t count) {
  if (count <= kMaxNested) [[likely]]
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a value holds ", count, " references, at most ",
                                                 kMaxNested, "; put them into several values"));
}

// Cuts what is longer than an error may be, and says so in its words.
void CutError(Error* error);

}  // namespace sheaf
