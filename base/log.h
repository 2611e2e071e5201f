// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The log of a daemon or a driver: one line an event, for the person who runs it. Thread-safe.
// Until StartLog is called, warnings and errors go to the standard error stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sheaf {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::string file;  // Empty: the standard error stream.
  // Of the file; then it becomes FILE.1, and FILE.1 is deleted.
  size_t max_bytes = 16 * 1024 * 1024;
  std::string process;  // In each line: "raylet 3", "gcs".
  // Not empty: lines are JSON with the names of the Elastic Common Schema, and this is their
  // event.dataset: "sheaf.raylet".
  std::string json_dataset = {};
};

// kUnavailable: `file` cannot be written.
absl::Status StartLog(const LogOptions& options);
void FlushLog();

namespace internal {
inline std::atomic<LogLevel> log_level{LogLevel::kWarning};
void WriteLog(LogLevel level, std::string_view line);
}  // namespace internal

inline bool LogEnabled(LogLevel level) {
  return level >= internal::log_level.load(std::memory_order_relaxed);
}

// Writes the parts, joined as absl::StrCat does.
template <class... Parts>
void Log(LogLevel level, const Parts&... parts) {
  if (LogEnabled(level)) internal::WriteLog(level, absl::StrCat(parts...));
}

}  // namespace sheaf
