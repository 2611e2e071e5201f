// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/unheard_pairs.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace sheaf {

void UnheardPairs::Report(NodeNumber from, NodeNumber about, Nanos now) {
  if (from == about) return;
  const Pair pair = std::minmax(from, about);
  const auto [at, is_new] = pairs_.try_emplace(pair, Times{now, now, by_last_.end()});
  Times& times = at->second;
  times.last = now;
  if (is_new) {
    times.place = by_last_.insert(by_last_.end(), pair);
    unheard_[from].insert(about);
    unheard_[about].insert(from);
  } else {
    by_last_.splice(by_last_.end(), by_last_, times.place);
  }
  if (times.last - times.first >= options_.gather) ripe_.insert(pair);
}

void UnheardPairs::Erase(const Pair& pair) {
  const auto found = pairs_.find(pair);
  by_last_.erase(found->second.place);
  pairs_.erase(found);
  ripe_.erase(pair);
  for (const auto& [node, other] : {pair, Pair(pair.second, pair.first)}) {
    const auto of_node = unheard_.find(node);
    of_node->second.erase(other);
    if (of_node->second.empty()) unheard_.erase(of_node);
  }
}

void UnheardPairs::Remove(NodeNumber node) {
  const auto found = unheard_.find(node);
  if (found == unheard_.end()) return;
  for (const NodeNumber other : std::set<NodeNumber>(found->second))
    Erase(std::minmax(node, other));
}

std::optional<UnheardPairs::Verdict> UnheardPairs::Next(Nanos now, const WorthOf& worth) {
  while (!by_last_.empty() && now - pairs_.at(by_last_.front()).last > options_.fresh)
    Erase(Pair(by_last_.front()));
  const auto degree = [this](NodeNumber node) {
    const auto found = unheard_.find(node);
    return found == unheard_.end() ? 0 : static_cast<int>(found->second.size());
  };
  for (const Pair& pair : ripe_) {
    const auto rank = [&](NodeNumber node) {
      const int value = worth(node);
      return std::tuple(value >= 0, degree(node), -value, node);
    };
    const auto [one, other] = pair;
    const NodeNumber goes = rank(one) > rank(other) ? one : other;
    const NodeNumber stays = goes == one ? other : one;
    if (worth(goes) < 0) continue;
    const int others = degree(goes) - 1;
    return Verdict{goes, absl::StrCat("node ", stays,
                                      others == 0 ? "" : absl::StrCat(" and ", others, " more"),
                                      " and it do not hear each other, while the GCS hears both")};
  }
  return std::nullopt;
}

}  // namespace sheaf
