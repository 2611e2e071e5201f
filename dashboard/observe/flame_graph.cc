// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/flame_graph.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/utf8.h"

namespace sheaf::dashboard {
namespace {

constexpr double kWidth = 1200;
constexpr double kLeast = 0.33;  // Pixels.
constexpr int kRow = 17;
constexpr double kLetter = 7;  // About so wide.

struct Box {
  double left = 0, width = 0;
  int row = 0;
};

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::Utf8SafeCHexEscape(ValidUtf8(text)),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// So many characters of `text`, however many bytes each has.
std::string_view Beginning(std::string_view text, size_t characters) {
  size_t bytes = 0;
  for (; characters > 0 && bytes < text.size(); --characters)
    bytes += std::max<size_t>(CharacterLength(text.substr(bytes)), 1);
  return text.substr(0, bytes);
}

// Warm colours, the same one for a function wherever it stands.
std::string ColourOf(const std::string& function) {
  uint32_t hash = 2166136261u;
  for (const char letter : function) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619u;
  return absl::StrFormat("rgb(%d,%d,%d)", 205 + hash % 50, 90 + hash / 50 % 130,
                         30 + hash / 6500 % 60);
}

}  // namespace

std::string FlameGraphSvg(const proto::StateAnswer& answer) {
  const auto& nodes = answer.profile();
  const auto count = static_cast<size_t>(nodes.size());
  // From 1, as parents are named; 0 is the whole.
  std::vector<uint64_t> total(count + 1);
  const auto parent_of = [&](size_t place) -> size_t {
    const size_t parent = nodes[static_cast<int>(place) - 1].parent();
    return parent < place ? parent : 0;
  };
  for (size_t place = count; place > 0; --place) {
    total[place] += nodes[static_cast<int>(place) - 1].self_us();
    total[parent_of(place)] += total[place];
  }
  std::vector<Box> boxes(count + 1);
  std::vector<double> next_left(count + 1);  // Of the next child.
  boxes[0] = {0, kWidth, -1};
  int rows = 0;
  for (size_t place = 1; place <= count; ++place) {
    const size_t parent = parent_of(place);
    const double width =
        total[0] == 0 ? 0
                      : kWidth * static_cast<double>(total[place]) / static_cast<double>(total[0]);
    boxes[place] = {next_left[parent], width, boxes[parent].row + 1};
    next_left[parent] += width;
    next_left[place] = boxes[place].left;
    if (width >= kLeast) rows = std::max(rows, boxes[place].row + 1);
  }
  const int height = rows * kRow + kRow;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %d\" width=\"%.0f\" "
      "height=\"%d\" font-family=\"monospace\" font-size=\"12\">\n",
      kWidth, height, kWidth, height);
  for (size_t place = 1; place <= count; ++place) {
    const Box& box = boxes[place];
    if (box.width < kLeast) continue;
    const proto::ProfileNode& node = nodes[static_cast<int>(place) - 1];
    const double top = height - kRow * (box.row + 1);
    absl::StrAppendFormat(
        &svg,
        "<g><title>%s (%s:%d), %.2f s, %.1f %%</title><rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" "
        "height=\"%d\" fill=\"%s\" stroke=\"white\" stroke-width=\"0.5\"/>",
        Escaped(node.function()), Escaped(node.file()), node.line(),
        static_cast<double>(total[place]) / 1e6, 100 * box.width / kWidth, box.left, top, box.width,
        kRow - 1, ColourOf(node.function()));
    const auto letters = static_cast<size_t>(box.width / kLetter);
    if (letters >= 3) {
      absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%.0f\" pointer-events=\"none\">%s</text>",
                            box.left + 2, top + 12, Escaped(Beginning(node.function(), letters)));
    }
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace sheaf::dashboard
