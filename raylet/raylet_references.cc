// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Borrowed references, and the objects of dead owners.
#include "base/status_macros.h"
#include "raylet/parse_frame.h"
#include "raylet/raylet.h"

namespace sheaf {

absl::Status Raylet::OnRefsReport(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto report, ParseFrame<proto::RefsReport>(frame));
  return references_.OnReport(from, report);
}

absl::Status Raylet::OnNodeRefsAck(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto ack, ParseFrame<proto::NodeRefsAck>(frame));
  references_.OnAck(from, ack);
  return absl::OkStatus();
}

}  // namespace sheaf
