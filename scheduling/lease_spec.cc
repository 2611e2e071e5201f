// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "scheduling/lease_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<LabelSelector> ParseSelector(const proto::LabelSelector& selector) {
  if (selector.terms_size() > kMaxLabelTerms)
    return absl::InvalidArgumentError("a label selector has at most 32 terms");
  LabelSelector result;
  for (const proto::LabelTerm& term : selector.terms()) {
    if (term.key().empty() || term.values_size() > kMaxLabelValues)
      return absl::InvalidArgumentError("a label term has a key and at most 256 values");
    result.terms.push_back(
        {term.key(), {term.values().begin(), term.values().end()}, term.negated()});
  }
  return result;
}

namespace {

absl::StatusOr<Strategy> ParseStrategy(const proto::Strategy& strategy) {
  Strategy result;
  switch (strategy.kind()) {
    case proto::Strategy::HYBRID:
      break;
    case proto::Strategy::SPREAD:
      result.kind = StrategyKind::kSpread;
      break;
    case proto::Strategy::NODE_AFFINITY:
      result.kind = StrategyKind::kNodeAffinity;
      result.node = strategy.node();
      result.soft = strategy.soft();
      break;
    case proto::Strategy::PLACEMENT_GROUP: {
      result.kind = StrategyKind::kPlacementGroup;
      SHEAF_ASSIGN_OR_RETURN(result.group, PlacementGroupId::FromBinary(strategy.group_id()));
      result.bundle = strategy.bundle();
      if (result.group.is_nil() || result.bundle < kAnyBundle) {
        return absl::InvalidArgumentError(
            absl::StrCat("bundle ", result.bundle, " of a placement group: want -1 or more"));
      }
      break;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("scheduling strategy ", strategy.kind(), " is unknown here"));
  }
  if (strategy.selectors_size() > kMaxSelectors)
    return absl::InvalidArgumentError("at most 16 label selectors");
  for (const proto::LabelSelector& selector : strategy.selectors()) {
    SHEAF_ASSIGN_OR_RETURN(LabelSelector parsed, ParseSelector(selector));
    result.selectors.push_back(std::move(parsed));
  }
  return result;
}

}  // namespace

absl::StatusOr<LeaseSpec> ParseLeaseSpec(const proto::LeaseSpec& spec) {
  LeaseSpec result;
  SHEAF_ASSIGN_OR_RETURN(result.resources, Resources::FromMap(spec.resources().amounts()));
  result.running = result.resources;
  if (spec.has_running()) {
    SHEAF_ASSIGN_OR_RETURN(result.running, Resources::FromMap(spec.running().amounts()));
    if (!result.resources.Fits(result.running)) {
      return absl::InvalidArgumentError(absl::StrCat("holds ", result.running.ToString(),
                                                     " once it runs, but asks only for ",
                                                     result.resources.ToString()));
    }
  }
  SHEAF_ASSIGN_OR_RETURN(result.strategy, ParseStrategy(spec.strategy()));
  result.environment = spec.environment();
  result.actor = spec.actor();
  if (!spec.actor_id().empty()) {
    SHEAF_ASSIGN_OR_RETURN(result.actor_id, ActorId::FromBinary(spec.actor_id()));
  }
  result.name = spec.name();
  return result;
}

namespace {

proto::Strategy ToMessage(const Strategy& strategy) {
  proto::Strategy message;
  switch (strategy.kind) {
    case StrategyKind::kHybrid:
      break;
    case StrategyKind::kSpread:
      message.set_kind(proto::Strategy::SPREAD);
      break;
    case StrategyKind::kNodeAffinity:
      message.set_kind(proto::Strategy::NODE_AFFINITY);
      message.set_node(strategy.node);
      message.set_soft(strategy.soft);
      break;
    case StrategyKind::kPlacementGroup:
      message.set_kind(proto::Strategy::PLACEMENT_GROUP);
      message.set_group_id(strategy.group.Binary());
      message.set_bundle(strategy.bundle);
      break;
  }
  for (const LabelSelector& selector : strategy.selectors) {
    *message.add_selectors() = ToMessage(selector);
  }
  return message;
}

}  // namespace

proto::LabelSelector ToMessage(const LabelSelector& selector) {
  proto::LabelSelector message;
  for (const LabelTerm& term : selector.terms) {
    proto::LabelTerm& made = *message.add_terms();
    made.set_key(term.key);
    for (const std::string& value : term.values) made.add_values(value);
    made.set_negated(term.negated);
  }
  return message;
}

proto::LeaseSpec ToMessage(const LeaseSpec& spec) {
  proto::LeaseSpec message;
  spec.resources.ToMap(*message.mutable_resources()->mutable_amounts());
  spec.running.ToMap(*message.mutable_running()->mutable_amounts());
  *message.mutable_strategy() = ToMessage(spec.strategy);
  message.set_environment(spec.environment);
  message.set_actor(spec.actor);
  if (spec.actor) message.set_actor_id(spec.actor_id.Binary());
  message.set_name(spec.name);
  return message;
}

}  // namespace sheaf
