// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/profile.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "dashboard/observe/profile_formats.h"
#include "dashboard/tables/cells.h"

namespace sheaf::cli {

int RunProfile(const ProfileOptions& options) {
  using dashboard::ProfileFormat;
  const auto format = dashboard::ProfileFormatOf(options.query.json ? "json" : options.format);
  if (!format) {
    return Complain(absl::InvalidArgumentError(absl::StrCat(
        "--format ", Printable(options.format), ": want one of ", dashboard::kProfileFormats)));
  }
  if (*format == ProfileFormat::kPprof && isatty(STDOUT_FILENO) != 0) {
    return Complain(absl::InvalidArgumentError(
        "pprof is nothing for a terminal: write it into a file, with > profile.pb.gz"));
  }
  const int64_t now = UnixNow();
  proto::StateQuery query;
  query.set_what(proto::StateQuery::PROFILE);
  query.set_function(options.function);
  query.set_job(options.job);
  query.set_node(options.node);
  query.set_from_unix_ns(now - static_cast<int64_t>(options.seconds * 1e9));
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) {
    Complain(absl::InternalError(answer->error()));
    return kNotThere;
  }
  if (*format == ProfileFormat::kText && answer->profile().empty()) {
    std::printf("No Python call has taken time in the last %g s.\n", options.seconds);
    return kDone;
  }
  std::string text = dashboard::FormatProfile(*answer, *format, query.from_unix_ns(), now);
  if (*format == ProfileFormat::kJson || *format == ProfileFormat::kSpeedscope) text += "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? kDone
                                  : Complain(absl::InternalError("the output cannot be written"));
}

}  // namespace sheaf::cli
