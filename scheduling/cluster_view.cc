// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/cluster_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sheaf {

std::string NodeIdText(NodeNumber node) {
  return absl::StrCat(std::string(40, '0'), absl::Hex(node, absl::kZeroPad16));
}

bool LabelSelector::Matches(const Labels& labels) const {
  return std::all_of(terms.begin(), terms.end(), [&](const LabelTerm& term) {
    const auto it = labels.find(term.key);
    if (term.values.empty()) return (it != labels.end()) != term.negated;
    const bool among = it != labels.end() && std::find(term.values.begin(), term.values.end(),
                                                       it->second) != term.values.end();
    return among != term.negated;
  });
}

std::string LabelSelector::ToString() const {
  return absl::StrJoin(terms, " and ", [](std::string* out, const LabelTerm& term) {
    if (term.values.empty()) {
      absl::StrAppend(out, term.key, term.negated ? " does not exist" : " exists");
      return;
    }
    absl::StrAppend(out, term.key, term.negated ? " not in (" : " in (",
                    absl::StrJoin(term.values, ", "), ")");
  });
}

}  // namespace sheaf
