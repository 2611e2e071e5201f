// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/unheard_pairs.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace sheaf {

void UnheardPairs::Report(NodeNumber from, NodeNumber about, Nanos now) {
  if (from == about) return;
  const auto [at, is_new] = pairs_.try_emplace(std::minmax(from, about), Times{now, now});
  at->second.last = now;
}

void UnheardPairs::Remove(NodeNumber node) {
  std::erase_if(pairs_, [node](const auto& entry) {
    return entry.first.first == node || entry.first.second == node;
  });
}

std::optional<UnheardPairs::Verdict> UnheardPairs::Next(Nanos now, const WorthOf& worth) {
  std::erase_if(pairs_,
                [&](const auto& entry) { return now - entry.second.last > options_.fresh; });
  std::map<NodeNumber, int> degrees;
  for (const auto& [pair, times] : pairs_) {
    ++degrees[pair.first];
    ++degrees[pair.second];
  }
  for (const auto& [pair, times] : pairs_) {
    if (times.last - times.first < options_.gather) continue;
    const auto rank = [&](NodeNumber node) {
      const int value = worth(node);
      return std::tuple(value >= 0, degrees[node], -value, node);
    };
    const auto [one, other] = pair;
    const NodeNumber goes = rank(one) > rank(other) ? one : other;
    const NodeNumber stays = goes == one ? other : one;
    if (worth(goes) < 0) continue;
    const int others = degrees[goes] - 1;
    return Verdict{goes, absl::StrCat("node ", stays,
                                      others == 0 ? "" : absl::StrCat(" and ", others, " more"),
                                      " and it do not hear each other, while the GCS hears both")};
  }
  return std::nullopt;
}

}  // namespace sheaf
