// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/printing/log_printer.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

LogPrinter::LogPrinter(std::function<void(const proto::LogLines&)> print)
    : shared_(std::make_shared<Shared>(std::move(print))) {}

void LogPrinter::Print(proto::LogLines lines) {
  if (!shared_->print) return;
  if (shared_->bytes + lines.ByteSizeLong() > kMostBytes) {
    left_out_ += static_cast<size_t>(lines.lines_size());
    return;
  }
  if (const size_t count = std::exchange(left_out_, 0); count != 0) {
    proto::LogLines note;
    note.set_name("sheaf");
    note.set_os_pid(getpid());
    note.set_error_stream(true);
    note.add_lines(absl::StrCat(count,
                                " lines of workers were left out here: this program's output took "
                                "no more; they are in the logs of the nodes"));
    Post(std::move(note));
  }
  Post(std::move(lines));
}

void LogPrinter::Post(proto::LogLines lines) {
  const size_t bytes = lines.ByteSizeLong();
  shared_->bytes += bytes;
  runner_.Post([shared = shared_, lines = std::move(lines), bytes] {
    shared->print(lines);
    shared->bytes -= bytes;
  });
}

}  // namespace sheaf
