// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the examples print with.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace examples {

// A headline, with what follows it in a few words.
void Title(const std::string& name, const std::string& what);
// "  label      text": labels stand in one column.
void Row(const std::string& label, const std::string& text);

std::string WithCommas(uint64_t number);  // "100,000"
std::string Seconds(double seconds);      // "12.3 ms", "4.56 s"
std::string Bytes(uint64_t bytes);        // "1.2 MiB"
std::string Bar(double part, int width);  // A bar of up to `width` cells; `part` in [0, 1].

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One line that grows with the work: on a terminal it is drawn again and again, elsewhere printed
// at its end.
class Progress {
 public:
  explicit Progress(std::string label);
  void Show(double part, const std::string& text);
  void Done(const std::string& text);

 private:
  const std::string label_;
  const bool terminal_;
  double shown_at_ = -1;
  Stopwatch watch_;
};

}  // namespace examples
