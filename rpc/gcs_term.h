// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which start of the control store somebody follows: `term` grows by one at each, and no connection
// is made with one whose term is over (a head that was paused while a copy of it was started).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace sheaf {

// All zero: none is known yet.
struct GcsTerm {
  uint64_t cluster = 0;  // The first 8 bytes of the cluster's id.
  uint64_t term = 0;

  static GcsTerm Of(std::string_view cluster_id, uint64_t term) {
    GcsTerm out{0, term};
    std::memcpy(&out.cluster, cluster_id.data(), std::min(cluster_id.size(), sizeof out.cluster));
    return out;
  }
  // Of the same cluster, and begun later.
  bool Replaces(const GcsTerm& other) const {
    return cluster == other.cluster && term > other.term && other.term != 0;
  }
};

}  // namespace sheaf
