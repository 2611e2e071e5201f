// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Placement groups: resources reserved together, on one node or on several, for tasks and actors
// that belong together.
//
//   auto group = sheaf::CreateGroup({{{"CPU", 1}}, {{"CPU", 1}}}, sheaf::GroupPolicy::kSpread);
//   group.Wait(10s);
//   sheaf::Task(Square).Place(sheaf::Strategy::Group(group, 0)).Remote(3);
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "sheaf/object_ref.h"
#include "sheaf/options.h"

namespace sheaf::inline v1 {

using Bundle = std::map<std::string, double>;  // Resources that are on one node.

// How the bundles of a group lie on nodes.
enum class GroupPolicy : uint8_t {
  kPack = 0,          // On as few nodes as can be.
  kSpread = 1,        // On as many as can be.
  kStrictPack = 2,    // On one node, or not at all.
  kStrictSpread = 3,  // Each on a node of its own, or not at all.
};

// Of CreateGroup.
struct GroupOptions {
  std::string name{};                      // For people.
  bool detached = false;                   // Lives until removed, also after this job.
  std::vector<LabelSelector> selectors{};  // One per bundle, or none.
};

// The name of a group; copies name the same one. A group is removed with its job, or by Remove.
class PlacementGroup {
 public:
  PlacementGroup() = default;  // Empty: no group.

  // Waits until its resources are reserved. False: they are not, after `timeout`. Throws
  // GroupRemovedError, RayletDiedError.
  SHEAF_API bool Wait(std::chrono::nanoseconds timeout = kForever) const;
  // The numbers of the nodes where its bundles are, one for each; empty until they are reserved.
  SHEAF_API std::vector<uint32_t> Nodes() const;
  // Gives its resources back; the tasks and actors that run in them are ended.
  SHEAF_API void Remove();
  // 32 hexadecimal digits, as the command line takes them.
  std::string id() const { return internal::ToHex(id_); }
  // For Sheaf's own use.
  internal::RawId raw_id() const { return id_; }

 private:
  friend SHEAF_API PlacementGroup CreateGroup(const std::vector<Bundle>& bundles,
                                              GroupPolicy policy, const GroupOptions& options);
  internal::RawId id_;
};

// Asks for a group and returns at once. Throws InvalidArgumentError: no bundles, an empty one,
// amounts that are none.
SHEAF_API PlacementGroup CreateGroup(const std::vector<Bundle>& bundles,
                                     GroupPolicy policy = GroupPolicy::kPack,
                                     const GroupOptions& options = {});

inline Strategy Strategy::Group(const PlacementGroup& group, int bundle, bool children) {
  Strategy strategy(Kind::kGroup);
  strategy.group_ = group.raw_id();
  strategy.bundle_ = bundle;
  strategy.children_ = children;
  return strategy;
}

}  // namespace sheaf::inline v1
