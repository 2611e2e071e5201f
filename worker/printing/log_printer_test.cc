// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/printing/log_printer.h"

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <vector>

namespace sheaf {
namespace log_printer_test {

proto::LogLines Lines(std::string text) {
  proto::LogLines lines;
  lines.add_lines(std::move(text));
  return lines;
}

TEST_CASE("lines that nobody takes are kept up to a bound, and then counted") {
  std::promise<void> release;
  std::vector<std::string> printed;
  LogPrinter printer([&, open = release.get_future().share()](const proto::LogLines& lines) {
    open.wait();  // As a pipe whose reader is stopped.
    for (const std::string& line : lines.lines()) printed.push_back(line.substr(0, 40));
  });
  const std::string megabyte(1 << 20, 'x');
  const size_t fit = LogPrinter::kMostBytes / (megabyte.size() + 16);
  for (size_t i = 0; i < fit + 5; ++i) printer.Print(Lines(megabyte));
  release.set_value();
  const Nanos deadline = MonotonicNow() + 20 * kSecond;
  while (MonotonicNow() < deadline) {  // Until there is room again.
    printer.Print(Lines("after"));
    if (printer.left_out() == 0) break;
    std::this_thread::yield();
  }
  printer.Close(20 * kSecond);
  REQUIRE(printed.size() == fit + 2);
  const size_t lost = std::stoul(printed[fit]);
  CHECK(lost >= 5);
  CHECK(printed[fit].starts_with(std::to_string(lost) + " lines of workers were left out here"));
  CHECK(printed[fit + 1] == "after");
}

}  // namespace log_printer_test
}  // namespace sheaf
