// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a driver's user is told of requests that nothing can satisfy now: at once of the first of
// its kind, and of those that follow in one line with their number. Bounded: as many kinds at a
// time, and a line of each a few seconds, then a minute, apart. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/clock.h"

namespace sheaf {

class WaitingNotices {
 public:
  static constexpr size_t kMostKinds = 64;
  static constexpr Nanos kFirstPause = 2 * kSecond;
  static constexpr Nanos kLongestPause = 60 * kSecond;  // And so long a kind is remembered.

  // `print` gets the lines that are to be printed.
  explicit WaitingNotices(std::function<void(std::string words)> print)
      : print_(std::move(print)) {}

  // One more request of `kind` waits, of which `words` tell.
  void Add(const std::string& kind, const std::string& words, Nanos now);
  // To be called several times a second.
  void Tick(Nanos now);

 private:
  struct Kind {
    std::string words;
    uint64_t more = 0;  // Not told yet.
    Nanos pause = kFirstPause;
    Nanos due = 0;
  };
  const std::function<void(std::string words)> print_;
  absl::btree_map<std::string, Kind> kinds_;
  Kind others_;  // What found no room there.
};

}  // namespace sheaf
