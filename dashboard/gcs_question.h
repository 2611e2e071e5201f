// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions and commands to the GCS, which the node passes on.
#pragma once

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "dashboard/asker.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {

// Repeats `request` until the GCS answers: it has to mean the same twice. An answer that says no is
// one. kUnavailable: the node, or the GCS, does not answer in time. Blocks. Thread-safe.
absl::StatusOr<proto::GcsReply> AskGcs(const AskNode& ask, const proto::GcsRequest& request,
                                       Nanos timeout);

}  // namespace sheaf::dashboard
