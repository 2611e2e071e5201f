// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/timeline.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "telemetry/call_trace.h"

namespace sheaf::cli {

int RunTimeline(const TimelineOptions& options) {
  const auto format = telemetry::ParseTraceFormat(options.format);
  if (!format.ok()) {
    Complain(format.status());
    return kUsage;
  }
  const auto trace = telemetry::CollectCalls(
      [&options](const proto::StateQuery& query) { return Ask(options.query, query); },
      telemetry::MostCallsOf(*format), options.job);
  if (!trace.ok()) return Complain(trace.status());
  const std::string text = telemetry::WriteTrace(*trace, *format);
  FILE* const file = options.file.empty() ? stdout : std::fopen(options.file.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = (file == stdout ? std::fflush : std::fclose)(file) == 0 && written;
  if (!written) {
    Complain(absl::ErrnoToStatus(errno, options.file));
    return kFailed;
  }
  if (trace->lost != 0) {
    std::fprintf(stderr, "sheaf: %llu calls came and went before a node looked\n",
                 static_cast<unsigned long long>(trace->lost));
  }
  if (!options.file.empty())
    std::printf("%zu calls are in %s\n", trace->calls.size(), options.file.c_str());
  return kDone;
}

}  // namespace sheaf::cli
