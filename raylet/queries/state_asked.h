// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A question with what is known of its answer. Where rows of several nodes become one, what is there
// already is found by its key: an answer of a thousand nodes is not looked through a thousand times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proto/raylet.pb.h"

namespace sheaf {

struct StateAsked {
  proto::StateQuery message;
  uint32_t limit = 0;  // Rows of a kind.
  proto::StateAnswer answer;
  size_t bytes = 0;         // Of the rows in it, those that are bounded (RowBudget).
  size_t stacks_bytes = 0;  // STACKS: of what processes of this node have told.
  // Where rows are in the answer. FUNCTIONS: by job, type and name; DEMAND: by shape.
  absl::flat_hash_map<std::tuple<uint32_t, std::string, std::string>, int> function_places;
  absl::flat_hash_map<std::string, int> demand_places;
  // PROFILE: from 1, by parent, job, line, function and file.
  absl::flat_hash_map<std::tuple<uint32_t, uint32_t, uint32_t, std::string, std::string>, uint32_t>
      profile_places;
  absl::flat_hash_set<std::string> actors, groups;  // The ids of those that are there.
};

}  // namespace sheaf
