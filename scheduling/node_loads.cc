// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/node_loads.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

struct Column {
  std::vector<std::pair<NodeNumber, Amount>> amounts;
  bool whole = true;  // All of them are.
};

int64_t AmountIn(const proto::Resources& resources, const std::string& name) {
  const auto at = resources.amounts().find(name);
  return at == resources.amounts().end() ? 0 : at->second;
}

// Of CPUs that were lent and are taken back a node has less than none. Half a GPU may be free beside
// a whole one, which nobody may ask for: so no CheckAmount here.
void SetFree(std::string_view name, Amount amount, Resources& resources) {
  const bool grows = amount > 0 && resources.Get(name) == 0;
  if (grows && resources.custom().size() >= kMaxResourceNames) return;
  resources.Set(name, std::max<Amount>(amount, 0));
}

}  // namespace

Resources FreeResources(const proto::Resources& available) {
  Resources result;
  for (const auto& [name, amount] : available.amounts()) {
    if (Resources::CheckAmount(name, 0).ok()) SetFree(name, amount, result);
  }
  return result;
}

proto::NodeLoads KnownLoads::Changes(const std::map<NodeNumber, const proto::Resources*>& now) {
  std::map<std::string, Column> columns;
  const auto add = [&](NodeNumber node, const std::string& name, int64_t amount) {
    Column& column = columns[name];
    column.amounts.emplace_back(node, amount);
    column.whole &= amount % kUnit == 0;
  };
  proto::NodeLoads loads;
  NodeNumber last = 0;
  for (const auto& [node, available] : now) {
    const auto [at, first] = known_.try_emplace(node);
    proto::Resources& known = at->second;
    if (first) loads.add_anew(node - std::exchange(last, node));
    for (const auto& [name, amount] : available->amounts()) {
      if (AmountIn(known, name) != amount) add(node, name, amount);
    }
    for (const auto& [name, amount] : known.amounts()) {
      if (amount != 0 && !available->amounts().contains(name)) add(node, name, 0);
    }
    known = *available;
  }
  for (const auto& [name, column] : columns) {
    proto::LoadColumn& written = *loads.add_columns();
    written.set_resource(name);
    written.set_unit(column.whole ? kUnit : 1);
    last = 0;
    for (const auto& [node, amount] : column.amounts) {
      written.add_nodes(node - std::exchange(last, node));
      written.add_amounts(amount / written.unit());
    }
  }
  return loads;
}

absl::Status ApplyLoads(const proto::NodeLoads& loads,
                        absl::FunctionRef<Resources*(NodeNumber)> known) {
  NodeNumber node = 0;
  for (const uint32_t step : loads.anew()) {
    if (Resources* const resources = known(node += step)) *resources = {};
  }
  for (const proto::LoadColumn& column : loads.columns()) {
    // A node's own mistake is no reason to know less of others.
    if (!Resources::CheckAmount(column.resource(), 0).ok()) continue;
    if (column.nodes_size() != column.amounts_size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          column.nodes_size(), " nodes have ", column.amounts_size(), " amounts of a resource"));
    }
    node = 0;
    for (int i = 0; i < column.nodes_size(); ++i) {
      Resources* const resources = known(node += column.nodes(i));
      if (resources == nullptr) continue;
      Amount amount = 0;
      if (__builtin_mul_overflow(column.amounts(i), column.unit(), &amount)) {
        return absl::InvalidArgumentError("an amount of a resource is beyond 64 bits");
      }
      SetFree(column.resource(), amount, *resources);
    }
  }
  return absl::OkStatus();
}

}  // namespace sheaf
