// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "sheaf/placement.h"

#include "api/failures.h"
#include "api/process.h"
#include "api/templates.h"

namespace sheaf::inline v1 {
namespace {

PlacementGroupId CoreId(internal::RawId id) { return {id.maker, id.sequence}; }

}  // namespace

PlacementGroup CreateGroup(const std::vector<Bundle>& bundles, GroupPolicy policy,
                           const GroupOptions& options) {
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::CREATE);
  request.set_placement(static_cast<proto::GroupRequest::Placement>(policy));
  request.set_name(options.name);
  request.set_detached(options.detached);
  if (bundles.empty()) throw InvalidArgumentError("a placement group has at least one bundle");
  for (const Bundle& bundle : bundles) {
    internal::FillResources(bundle, request.add_bundles());
    if (request.bundles(request.bundles_size() - 1).amounts().empty()) {
      throw InvalidArgumentError("a bundle of a placement group asks for at least one resource");
    }
  }
  if (!options.selectors.empty() && options.selectors.size() != bundles.size()) {
    throw InvalidArgumentError(
        "a placement group has a label selector for each bundle, or none at all");
  }
  internal::FillSelectors(options.selectors, request.mutable_selectors());
  PlacementGroup group;
  group.id_ = internal::PublicId(
      internal::ValueOrThrow(internal::TheRuntime().CreateGroup(std::move(request))));
  return group;
}

bool PlacementGroup::Wait(std::chrono::nanoseconds timeout) const {
  absl::StatusOr<proto::GroupState> state =
      internal::TheRuntime().WaitGroup(CoreId(id_), internal::DeadlineAfter(timeout));
  if (absl::IsDeadlineExceeded(state.status())) return false;
  internal::ThrowIfFailed(state.status());
  if (state->state() == proto::GroupState::REMOVED) {
    throw GroupRemovedError("placement group " + id() + " was removed" +
                            (state->message().empty() ? "" : ": " + state->message()));
  }
  return state->state() == proto::GroupState::CREATED;
}

std::vector<uint32_t> PlacementGroup::Nodes() const {
  absl::StatusOr<proto::GroupState> state = internal::TheRuntime().WaitGroup(CoreId(id_), 0);
  if (!state.ok()) return {};
  return {state->bundle_nodes().begin(), state->bundle_nodes().end()};
}

void PlacementGroup::Remove() {
  internal::ThrowIfFailed(internal::TheRuntime().RemoveGroup(CoreId(id_)));
}

}  // namespace sheaf::inline v1
