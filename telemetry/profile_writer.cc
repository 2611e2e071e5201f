// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/profile_writer.h"

#include "absl/strings/str_cat.h"
#include "telemetry/event_words.h"
#include "telemetry/event_writer.h"

namespace sheaf::telemetry {

uint32_t ProfileWriter::FrameOf(std::string_view function, std::string_view file, uint32_t line) {
  const std::string_view shown = Shortened(function, kFrameFunctionBytes);
  const std::string_view path = LastOf(file, kFrameFileBytes);
  const auto number = static_cast<uint32_t>(frames_.size());
  const auto [known, is_new] =
      frames_.try_emplace(absl::StrCat(absl::string_view(shown.data(), shown.size()), "\n",
                                       absl::string_view(path.data(), path.size()), "\n", line),
                          number);
  if (!is_new) return known->second;
  if (number >= kProfileFrames) {
    frames_.erase(known);
    return kNoFrame;
  }
  FrameSlot& slot = page_.frames[number];
  slot.line.store(line, std::memory_order_relaxed);
  StoreText(slot.function, shown);
  StoreText(slot.file, path);
  page_.header.frames.store(number + 1, std::memory_order_release);
  return number;
}

uint32_t ProfileWriter::Below(uint32_t parent, uint32_t frame) {
  if (frame == kNoFrame) return parent;
  const uint64_t place = uint64_t{parent} << 32 | frame;
  if (const auto known = nodes_.find(place); known != nodes_.end()) return known->second;
  const auto number = static_cast<uint32_t>(nodes_.size()) + 1;
  if (number >= kProfileNodes) return parent;
  nodes_.emplace(place, number);
  page_.nodes[number].place.store(place, std::memory_order_relaxed);
  page_.header.nodes.store(number, std::memory_order_release);
  return number;
}

void ProfileWriter::Add(uint32_t node, uint64_t microseconds) {
  const auto add = [](std::atomic<uint64_t>& word, uint64_t more) {
    word.store(word.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  };
  add(page_.nodes[node].self_us, microseconds);
  add(page_.header.samples, 1);
}

}  // namespace sheaf::telemetry
