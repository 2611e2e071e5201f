// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "console.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace examples {
namespace {

constexpr int kLabelColumn = 12;

std::string Format(const char* format, double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value, unit);
  return text;
}

}  // namespace

void Title(const std::string& name, const std::string& what) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::printf("\n%s%s%s  %s\n", terminal ? "\033[1m" : "", name.c_str(), terminal ? "\033[0m" : "",
              what.c_str());
}

void Row(const std::string& label, const std::string& text) {
  std::printf("  %-*s %s\n", kLabelColumn, label.c_str(), text.c_str());
  std::fflush(stdout);
}

std::string WithCommas(uint64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string Seconds(double seconds) {
  if (seconds < 1e-3) return Format("%.0f %s", seconds * 1e6, "us");
  if (seconds < 1) return Format("%.1f %s", seconds * 1e3, "ms");
  return Format("%.2f %s", seconds, "s");
}

std::string Bytes(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return Format(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::string Bar(double part, int width) {
  const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int cells = static_cast<int>(std::clamp(part, 0., 1.) * width * 8 + 0.5);
  std::string bar;
  for (int i = 0; i < cells / 8; ++i) bar += "█";
  return bar + eighths[cells % 8];
}

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDOUT_FILENO) != 0) {}

void Progress::Show(double part, const std::string& text) {
  if (!terminal_ || watch_.seconds() - shown_at_ < 0.05) return;
  shown_at_ = watch_.seconds();
  constexpr int kWidth = 24;
  const std::string bar = Bar(part, kWidth);
  const int cells = static_cast<int>(std::clamp(part, 0., 1.) * kWidth * 8 + 0.5 + 7) / 8;
  std::printf("\r  %-*s %s%*s %s\033[K", kLabelColumn, label_.c_str(), bar.c_str(), kWidth - cells,
              "", text.c_str());
  std::fflush(stdout);
}

void Progress::Done(const std::string& text) {
  if (terminal_) std::printf("\r\033[K");
  Row(label_, text);
}

}  // namespace examples
