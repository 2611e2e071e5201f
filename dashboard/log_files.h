// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The files that processes of a node write: their names, and what stands at their ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::dashboard {

inline constexpr uint64_t kMaxLogBytes = uint64_t{64} << 20;  // Of one answer: the last ones.

// {"worker_out":["worker-1.3.out",...],...} of the names in `directory` that fit `glob`.
std::string LogGroupsJson(const std::string& directory, const std::string& glob);

// A part of a file.
struct LogPart {
  std::string bytes;
  uint64_t end = 0;  // Where in the file the next byte will be.
};

// The last `lines` lines of a file, all with a number below 0; of more than kMaxLogBytes the last
// ones, with a first line that says so. kInvalidArgument: a name that leads elsewhere. kNotFound:
// no such file.
absl::StatusOr<LogPart> ReadLogEnd(const std::string& directory, std::string_view name,
                                   int64_t lines);
// What stands behind `from`, at most `most` bytes. Of a file that has become shorter than `from`
// all, behind a line that says so. Errors as above.
absl::StatusOr<LogPart> ReadLogFrom(const std::string& directory, std::string_view name,
                                    uint64_t from, uint64_t most);

// Without the codes that colour a terminal.
std::string WithoutAnsiCodes(std::string_view text);

}  // namespace sheaf::dashboard
