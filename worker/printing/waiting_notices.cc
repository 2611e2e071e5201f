// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/printing/waiting_notices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

void WaitingNotices::Add(const std::string& kind, const std::string& words, Nanos now) {
  const auto known = kinds_.find(kind);
  if (known != kinds_.end()) {
    ++known->second.more;
    return;
  }
  if (kinds_.size() >= kMostKinds) {
    if (others_.more++ != 0) return;
    if (now > Deadline(others_.due, kLongestPause)) others_.pause = kFirstPause;
    others_.due = std::max(others_.due, Deadline(now, kFirstPause));
    return;
  }
  kinds_[kind] = {.words = words, .due = Deadline(now, kFirstPause)};
  print_(words);
}

void WaitingNotices::Tick(Nanos now) {
  for (auto entry = kinds_.begin(); entry != kinds_.end();) {
    Kind& kind = entry->second;
    if (now < kind.due) {
      ++entry;
    } else if (kind.more == 0 && kind.pause == kLongestPause) {
      entry = kinds_.erase(entry);
    } else {
      if (kind.more > 0) {
        print_(absl::StrCat(kind.words, " (", std::exchange(kind.more, 0), " more wait)"));
      }
      kind.pause = std::min(4 * kind.pause, kLongestPause);
      kind.due = Deadline(now, kind.pause);
      ++entry;
    }
  }
  if (others_.more > 0 && now >= others_.due) {
    print_(absl::StrCat(std::exchange(others_.more, 0),
                        " more requests wait, of other kinds, that nothing can satisfy "
                        "now; sheaf status shows them"));
    others_.pause = std::min(4 * others_.pause, kLongestPause);
    others_.due = Deadline(now, others_.pause);
  }
}

}  // namespace sheaf
