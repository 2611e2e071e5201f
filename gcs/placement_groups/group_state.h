// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The life of a placement group, as the GCS sees it.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/gcs.pb.h"

namespace sheaf {

enum class GroupEvent : uint8_t {
  kPlaced,  // A raylet has reserved all bundles.
  // A node with a bundle, or the raylet that was asked, is dead; or none knows of it after the GCS
  // has started again.
  kLost,
  kRemoved,  // For good, on request or because its job ended.
};
enum class GroupDecision : uint8_t {
  kRecord,  // Where its bundles are.
  kPlace,   // Anew, under the next placement number.
  kDrop,    // Raylets give the bundles back.
};
struct GroupStep {
  proto::GroupInfo::State next;
  GroupDecision action;
};

//   PENDING, RESCHEDULING --placed--> CREATED --lost--> RESCHEDULING
//   any but REMOVED       --removed--> REMOVED
// nullopt: `event` means nothing in `state`, and is dropped.
constexpr std::optional<GroupStep> Next(proto::GroupInfo::State state, GroupEvent event) {
  using Info = proto::GroupInfo;
  if (state == Info::REMOVED) return std::nullopt;
  switch (event) {
    case GroupEvent::kPlaced:
      if (state == Info::CREATED) return std::nullopt;
      return GroupStep{Info::CREATED, GroupDecision::kRecord};
    case GroupEvent::kLost:
      return GroupStep{state == Info::PENDING ? Info::PENDING : Info::RESCHEDULING,
                       GroupDecision::kPlace};
    case GroupEvent::kRemoved:
      return GroupStep{Info::REMOVED, GroupDecision::kDrop};
  }
  return std::nullopt;
}
static_assert(!Next(proto::GroupInfo::REMOVED, GroupEvent::kPlaced));

}  // namespace sheaf
