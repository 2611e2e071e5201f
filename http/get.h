// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One question to a server.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace sheaf::http {

// The body of what `url` (http/client.h) answers with 200, at most 64 MiB. Blocks. kInvalidArgument: no such URL. kDeadlineExceeded: it was not there within
// `timeout`. kUnavailable: no connection, or another status, which the text has.
absl::StatusOr<std::string> Get(const std::string& url, Nanos timeout);

}  // namespace sheaf::http
