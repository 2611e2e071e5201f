// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What happened in a run: a hash over all of it, which says whether two runs were the same, and on
// request the text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"

namespace sheaf::sim {

const char* FrameName(FrameKind kind);
// What matters of a frame about one call, for people.
std::string FrameWords(FrameKind kind, std::string_view body);

// Frames that went from one node to another, or to and from the GCS, by kind.
using FrameCounts = std::array<uint64_t, 256>;

class Trace {
 public:
  explicit Trace(bool print) : print_(print) {}

  bool printing() const { return print_; }
  uint64_t hash() const { return hash_; }
  const FrameCounts& between_nodes() const { return between_nodes_; }

  void Frame(Nanos now, ProcessId from, ProcessId to, FrameKind kind, std::string_view body) {
    Mix(static_cast<uint64_t>(now));
    Mix(from.packed());
    Mix(to.packed());
    Mix(static_cast<uint64_t>(kind) << 32 | body.size());
    if (from.node != to.node) ++between_nodes_[static_cast<size_t>(kind) % between_nodes_.size()];
    if (print_) [[unlikely]] {
      Line(now, absl::StrCat(from.ToString(), " -> ", to.ToString(), " ", FrameName(kind), " ",
                             body.size(), FrameWords(kind, body)));
    }
  }
  // Something else than a frame: `words` is only made up when it is printed.
  template <class... Parts>
  void Note(Nanos now, ProcessId who, std::string_view what, const Parts&... parts) {
    Mix(static_cast<uint64_t>(now));
    Mix(who.packed());
    for (const char c : what) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * kPrime;
    if (print_) [[unlikely]] {
      Line(now, absl::StrCat(who.ToString(), " ", absl::string_view(what.data(), what.size()), " ",
                             parts...));
    }
  }

 private:
  static constexpr uint64_t kPrime = 0x100000001b3u;
  void Mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 29;
  }
  static void Line(Nanos now, const std::string& text) {
    std::printf("%12.6f %s\n", static_cast<double>(now) / kSecond, text.c_str());
  }

  const bool print_;
  uint64_t hash_ = 0xcbf29ce484222325u;
  FrameCounts between_nodes_{};
};

}  // namespace sheaf::sim
