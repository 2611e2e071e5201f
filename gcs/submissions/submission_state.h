// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The life of a submission, as the GCS decides it.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/gcs.pb.h"

namespace sheaf {

enum class SubmissionEvent : uint8_t {
  kPlaced,     // A node was chosen; it is ordered from there.
  kGivenBack,  // That node has not begun it, and will not.
  kRunning,    // Its command has begun.
  kSucceeded,  // The command ended with status 0.
  kFailed,     // It ended otherwise, its environment could not be made, or its node died.
  kWithdrawn,  // Somebody wants its end, or its time to start is over.
};

// nullopt: `event` means nothing in `state`, and is dropped.
//
//   PENDING --placed--> STARTING --running--> RUNNING --succeeded--> SUCCEEDED
//      ^                   |  |                  +------failed-----> FAILED
//      +----given back-----+  +--ended before it was heard to run--> either
//
// PENDING and withdrawn is the end at once: STOPPED, or FAILED when time is over. What a raylet may
// have begun is told to end, and stays in its state until the raylet says that it did; it is never
// begun elsewhere.
constexpr std::optional<proto::Submission::State> Next(proto::Submission::State state,
                                                       SubmissionEvent event) {
  using S = proto::Submission;
  const bool begun = state == S::STARTING || state == S::RUNNING;
  switch (event) {
    case SubmissionEvent::kPlaced:
      if (state == S::PENDING) return S::STARTING;
      return std::nullopt;
    case SubmissionEvent::kGivenBack:
      if (state == S::STARTING) return S::PENDING;
      return std::nullopt;
    case SubmissionEvent::kRunning:
      if (state == S::STARTING) return S::RUNNING;
      return std::nullopt;
    case SubmissionEvent::kSucceeded:
      if (begun) return S::SUCCEEDED;
      return std::nullopt;
    case SubmissionEvent::kFailed:
      if (begun) return S::FAILED;
      return std::nullopt;
    case SubmissionEvent::kWithdrawn:
      if (state == S::PENDING) return S::STOPPED;
      if (begun) return state;
      return std::nullopt;
  }
  return std::nullopt;
}

constexpr bool HasEnded(proto::Submission::State state) {
  return state == proto::Submission::SUCCEEDED || state == proto::Submission::FAILED ||
         state == proto::Submission::STOPPED;
}
static_assert(!Next(proto::Submission::STOPPED, SubmissionEvent::kRunning));
static_assert(!Next(proto::Submission::FAILED, SubmissionEvent::kWithdrawn));
static_assert(Next(proto::Submission::STARTING, SubmissionEvent::kFailed) ==
              proto::Submission::FAILED);

}  // namespace sheaf
