// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/pending_reason.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {
namespace {

constexpr size_t kHoldersNamed = 3;

struct Holder {
  std::string name;
  ProcessId owner;
  bool actor = false;
  size_t leases = 0;
  size_t asked_back = 0;
  Amount amount = 0;
};

// "2 leases of f (owner 1.5, asked for 1 of them)".
std::string HolderWords(const Holder& holder) {
  return absl::StrCat(
      holder.leases, holder.actor ? " actor" : " lease", holder.leases == 1 ? "" : "s", " of ",
      holder.name.empty() ? "unnamed code" : holder.name, " (owner ", holder.owner.ToString(),
      holder.asked_back == 0 ? ""
      : holder.leases == 1   ? ", which was asked for it"
                           : absl::StrCat(", which was asked for ", holder.asked_back, " of them"),
      ")");
}

// Who has `name` on this node, most first.
std::string HeldBy(const LeaseQueue& queue, std::string_view name, PlacementGroupId group,
                   NameOfLease name_of) {
  std::map<std::pair<ProcessId, std::string>, Holder> holders;
  Amount lent = 0;
  for (const Lease* lease : queue.Leases()) {
    const Amount amount = lease->allocation.resources.Get(name);
    const bool same = lease->allocation.bundle.has_value()
                          ? lease->allocation.bundle->group == group
                          : group.is_nil();
    if (amount <= 0 || !same) continue;
    if (lease->allocation.lent && name == "CPU") {
      lent += amount;
      continue;
    }
    const std::string running = lease->spec->actor ? lease->spec->name : name_of(*lease);
    Holder& holder = holders[{lease->demand.owner, running}];
    holder.name = running;
    holder.owner = lease->demand.owner;
    holder.actor = lease->spec->actor;
    ++holder.leases;
    holder.asked_back += lease->revoked ? 1 : 0;
    holder.amount += amount;
  }
  Amount held = 0;
  std::vector<Holder> sorted;
  for (auto& [key, holder] : holders) {
    held += holder.amount;
    sorted.push_back(std::move(holder));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Holder& a, const Holder& b) { return a.amount > b.amount; });
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(sorted.size(), kHoldersNamed); ++i)
    parts.push_back(HolderWords(sorted[i]));
  if (sorted.size() > kHoldersNamed)
    parts.push_back(absl::StrCat(sorted.size() - kHoldersNamed, " others"));
  Amount total = queue.ledger().total().Get(name);
  Amount bundles = 0;
  for (const auto& [id, bundle] : queue.ledger().bundles()) {
    if (group.is_nil()) {
      bundles += bundle.total.Get(name);
    } else if (id.group == group) {
      bundles += bundle.total.Get(name);
    }
  }
  if (!group.is_nil()) {
    total = bundles;
  } else if (bundles > 0) {
    held += bundles;
    parts.push_back(absl::StrCat("placement groups (", AmountToString(name, bundles), ")"));
  }
  const std::string whole = AmountToString(name, total);
  std::string amount = AmountToString(name, held);
  amount = amount.substr(0, amount.find(' '));
  std::string words = parts.empty()
                          ? absl::StrCat("none of ", whole, " is held")
                          : absl::StrCat(amount, " of ", whole, held > kUnit ? " are" : " is",
                                         " held by ", absl::StrJoin(parts, ", "));
  if (lent > 0)
    absl::StrAppend(&words, "; ", AmountToString(name, lent), " of blocked workers are lent");
  return words;
}

std::string Blocked(const LeaseQueue& queue) {
  size_t blocked = 0;
  for (const Lease* lease : queue.Leases()) blocked += lease->blocked_since != 0 ? 1 : 0;
  if (queue.lenders() < queue.options().lenders_max || blocked == 0) return "";
  return absl::StrCat("; ", blocked, " blocked workers, cap of ", queue.options().lenders_max,
                      " that lend their CPUs reached");
}

std::string GroupWords(const LeaseQueue& queue, PlacementGroupId group) {
  const auto it = queue.view().groups.find(group);
  if (it == queue.view().groups.end()) {
    return absl::StrCat("waits for placement group ", group.ToHex(),
                        ", of which this node has not heard");
  }
  return it->second.state == GroupPlacement::State::kPending
             ? absl::StrCat("waits for placement group ", group.ToHex(),
                            ", which is not placed yet")
             : "";
}

}  // namespace

std::string WhyPending(const LeaseQueue::Pending& pending, const LeaseQueue& queue,
                       NameOfLease name_of) {
  const LeaseSpec& spec = *pending.spec;
  std::string on = pending.spillback == 0 ? ""
                                          : absl::StrCat("; ", pending.spillback,
                                                         " of its leases are asked of other nodes");
  if (pending.missing == 0) return absl::StrCat("waits for other nodes", on);
  if (pending.infeasible) return absl::StrCat(InfeasibleWords(spec, queue.view()), on);
  PlacementGroupId group;
  if (spec.strategy.kind == StrategyKind::kPlacementGroup) {
    group = spec.strategy.group;
    if (std::string words = GroupWords(queue, group); !words.empty()) return words;
  }
  const std::string wanted = absl::StrCat("waits for ", spec.resources.ToString());
  if (pending.withheld) {
    return absl::StrCat(wanted, ": room is being kept free for a larger request that waits longer",
                        on);
  }
  Resources free = queue.ledger().available();
  if (!group.is_nil()) {
    free = {};
    for (const auto& [id, bundle] : queue.ledger().bundles()) {
      if (id.group == group &&
          (spec.strategy.bundle == kAnyBundle || spec.strategy.bundle == id.index)) {
        // Of the bundle that comes nearest.
        free = free.Fits(bundle.available) ? free : bundle.available;
      }
    }
  }
  std::vector<std::string> lacks;
  free.Missing(spec.resources).ForEach([&](std::string_view name, Amount) {
    lacks.push_back(HeldBy(queue, name, group, name_of));
  });
  if (lacks.empty()) {
    if (spec.resources.gpu() > 0)
      return absl::StrCat(wanted, ": no single GPU has that much left", on);
    if (spec.strategy.kind == StrategyKind::kNodeAffinity)
      return absl::StrCat(wanted, " on node ", spec.strategy.node, on);
    return absl::StrCat(wanted, " on a node that satisfies its labels or strategy", on);
  }
  return absl::StrCat(wanted, group.is_nil() ? "" : " in its placement group", ": ",
                      absl::StrJoin(lacks, "; "), Blocked(queue),
                      pending.reserving ? "; room is being kept free for it" : "", on);
}

std::string WhyNoWorker(const Lease& lease, int starting) {
  const std::string which = lease.spec->environment.empty() ? "its job" : "this environment";
  return starting == 0
             ? absl::StrCat("has its resources; waits for a worker of ", which)
             : absl::StrCat("has its resources; ", starting, starting == 1 ? " worker" : " workers",
                            " of ", which, starting == 1 ? " is" : " are", " starting");
}

std::string WhyGroup(const PlacementGroupLedger& groups, const LeaseQueue& queue,
                     PlacementGroupId id, NameOfLease name_of) {
  const PlacementGroupLedger::Group* group = groups.Find(id);
  if (group == nullptr) return "was removed, or was never made";
  if (group->state == proto::GroupState::CREATED) {
    std::vector<NodeNumber> nodes = group->nodes;
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return absl::StrCat("is placed on ", nodes.size() == 1 ? "node " : "nodes ",
                        absl::StrJoin(nodes, ", "));
  }
  if (group->state == proto::GroupState::INFEASIBLE)
    return InfeasibleGroupWords(group->spec, queue.view());
  if (!group->preparing.empty())
    return absl::StrCat("waits for the answer of nodes ", absl::StrJoin(group->preparing, ", "));
  Resources sum;
  size_t unplaced = 0;
  for (size_t i = 0; i < group->nodes.size(); ++i) {
    if (group->nodes[i] == 0) {
      sum += group->spec.bundles[i];
      ++unplaced;
    }
  }
  std::string words = absl::StrCat("waits for room for ", unplaced, " of ", group->nodes.size(),
                                   " bundles (", sum.ToString(), ")");
  std::vector<std::string> lacks;
  queue.ledger().available().Missing(sum).ForEach([&](std::string_view name, Amount) {
    lacks.push_back(HeldBy(queue, name, PlacementGroupId{}, name_of));
  });
  if (!lacks.empty())
    absl::StrAppend(&words, ": on node ", queue.view().local, " ", absl::StrJoin(lacks, "; "));
  return words;
}

}  // namespace sheaf
