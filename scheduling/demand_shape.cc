// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/demand_shape.h"

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"

namespace sheaf {

std::string ShapeOf(const proto::DemandRow& row) {
  const absl::btree_map<std::string, int64_t> amounts(row.resources().amounts().begin(),
                                                      row.resources().amounts().end());
  std::string shape;
  for (const auto& [name, amount] : amounts) absl::StrAppend(&shape, name, ":", amount, ",");
  for (const proto::LabelSelector& selector : row.selectors()) {
    absl::StrAppend(&shape, ";", selector.SerializeAsString());
  }
  return shape;
}

}  // namespace sheaf
