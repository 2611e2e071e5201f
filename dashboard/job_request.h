// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The body of POST /api/jobs/, as Ray's clients write it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {

// kInvalidArgument: no JSON object, or a field that is unknown or of the wrong type; the text names
// it. Without an id in it the submission is named after `idempotency_key`, so that who repeats the
// request means the same one.
absl::StatusOr<proto::SubmitEntrypoint> ParseJobRequest(std::string_view body,
                                                        const std::string& idempotency_key);

}  // namespace sheaf::dashboard
