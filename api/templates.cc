// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/templates.h"

#include <atomic>
#include <deque>
#include <map>

#include "api/failures.h"
#include "api/process.h"
#include "api/python_worker.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/resources.h"
#include "sheaf/serialize.h"

namespace sheaf::inline v1::internal {
namespace {

constexpr int kDefaultRetries = 3;

// What children inherit, or inherited last.
struct Inherited {
  Mutex mutex;
  std::string running_in ABSL_GUARDED_BY(mutex);  // The group of what runs now; empty: none.
  proto::Strategy strategy ABSL_GUARDED_BY(mutex);
  uint64_t number ABSL_GUARDED_BY(mutex) = 0;  // Grows with each other strategy.
};
Inherited& TheInherited() {
  static Inherited& inherited = *new Inherited;
  return inherited;
}
// Its number, which stands for it in templates too; 0: children inherit nothing.
constinit std::atomic<uint64_t> inherited_number{0};
constinit std::atomic<bool> runs_in_group{false};

struct Prepared {
  uint64_t generation;
  uint64_t inherited;
  uint32_t results;
  TemplateHandle handle;
};

// Default templates live as long as the process: one for each function and runtime.
const Prepared* KeepForever(Prepared prepared) {
  static Mutex mutex;
  static std::deque<Prepared>& kept ABSL_GUARDED_BY(mutex) = *new std::deque<Prepared>;
  const MutexLock lock(mutex);
  return &kept.emplace_back(std::move(prepared));
}

bool IsCurrent(const Prepared* prepared, uint32_t results) {
  return prepared != nullptr &&
         prepared->generation == runtime_generation.load(std::memory_order_acquire) &&
         prepared->inherited == inherited_number.load(std::memory_order_acquire) &&
         prepared->results == results;
}

Prepared Prepare(const FunctionRecord& function, const Options& options, uint32_t results) {
  Runtime& runtime = TheRuntime();
  const uint64_t generation = runtime_generation.load(std::memory_order_acquire);
  const uint64_t inherited = inherited_number.load(std::memory_order_acquire);
  return {generation, inherited, results,
          ValueOrThrow(runtime.MakeTemplate(BuildTemplate(function, options, results)))};
}

// Defaults in a task whose children inherit something. Of each thread the last one of a function.
const TemplateHandle& InheritingTemplateOf(const FunctionRecord& function, uint32_t results) {
  thread_local std::map<const FunctionRecord*, Prepared> kept;
  const auto found = kept.find(&function);
  if (found != kept.end() && IsCurrent(&found->second, results)) return found->second.handle;
  return kept.insert_or_assign(&function, Prepare(function, Options(), results))
      .first->second.handle;
}

void FillStrategy(const Strategy& strategy, proto::Strategy* out) {
  switch (strategy.kind()) {
    case Strategy::Kind::kDefault:
      out->set_kind(proto::Strategy::HYBRID);
      break;
    case Strategy::Kind::kSpread:
      out->set_kind(proto::Strategy::SPREAD);
      break;
    case Strategy::Kind::kNode:
      out->set_kind(proto::Strategy::NODE_AFFINITY);
      out->set_node(strategy.node());
      out->set_soft(strategy.soft());
      break;
    case Strategy::Kind::kGroup:
      out->set_kind(proto::Strategy::PLACEMENT_GROUP);
      out->set_group_id(
          PlacementGroupId{strategy.group().maker, strategy.group().sequence}.Binary());
      out->set_bundle(strategy.bundle());
      out->set_capture_children(strategy.children());
      break;
  }
  FillSelectors(strategy.selectors(), out->mutable_selectors());
}

void FillLease(const FunctionRecord& function, const Options& options, proto::LeaseSpec* lease) {
  const bool is_actor = function.kind == FunctionRecord::Kind::kConstructor;
  FillResources(options.resources, lease->mutable_resources());
  if (!options.resources.contains("CPU")) {
    // A CPU by default; an actor needs it only to be placed.
    if (is_actor) *lease->mutable_running() = lease->resources();
    (*lease->mutable_resources()->mutable_amounts())["CPU"] = kUnit;
  }
  if (options.strategy) {
    FillStrategy(*options.strategy, lease->mutable_strategy());
  } else if (inherited_number.load(std::memory_order_acquire) != 0) {
    Inherited& inherited = TheInherited();
    const MutexLock lock(inherited.mutex);
    *lease->mutable_strategy() = inherited.strategy;
  }
  lease->set_environment(ValueOrThrow(EncodeEnvironment(
      {.variables = options.environment, .others = LanguageEnvironment(function.python)})));
  lease->set_actor(is_actor);
  lease->set_name(function.name);
}

void FillActor(const FunctionRecord& constructor, const Options& options,
               proto::ActorOptions* actor) {
  actor->set_max_restarts(options.max_restarts);
  actor->set_max_task_retries(options.max_task_retries);
  actor->set_max_concurrency(options.max_concurrency);
  actor->set_is_async(constructor.is_async);
  for (const auto& [name, limit] : options.concurrency_groups) {
    if (name.empty() || limit == 0)
      throw InvalidArgumentError("a concurrency group has a name and at least one call at a time");
    proto::ConcurrencyGroup* group = actor->add_groups();
    group->set_name(name);
    group->set_max_concurrency(limit);
  }
  actor->set_out_of_order(options.out_of_order);
  actor->set_max_pending_calls(options.max_pending_calls);
  actor->set_name(options.name);
  actor->set_name_space(options.name_space);
  actor->set_detached(options.detached);
  actor->set_get_if_exists(options.get_if_exists);
  if ((options.detached || options.get_if_exists) && options.name.empty()) {
    throw InvalidArgumentError(
        "an actor that is Detached or GetIfExists needs a Name to be found by");
  }
  if (options.max_restarts < -1 || options.max_task_retries < -1) {
    throw InvalidArgumentError("restarts and retries are -1 (without bound) or more");
  }
}

}  // namespace

std::string EnvironmentBytes(const std::map<std::string, std::string>& variables) {
  return ValueOrThrow(EncodeEnvironment({.variables = variables, .others = {}}));
}

void FillResources(const std::map<std::string, double>& amounts, proto::Resources* out) {
  for (const auto& [name, amount] : amounts) {
    if (amount == 0) continue;
    (*out->mutable_amounts())[name] = ValueOrThrow(AmountFromDouble(name, amount));
  }
}

void FillSelector(const LabelSelector& selector, proto::LabelSelector* out) {
  for (const LabelTerm& term : selector) {
    if (term.key.empty()) throw InvalidArgumentError("a label has a name");
    proto::LabelTerm* to = out->add_terms();
    to->set_key(term.key);
    for (const std::string& value : term.values) to->add_values(value);
    to->set_negated(term.negated);
  }
}

void FillSelectors(const std::vector<LabelSelector>& selectors,
                   google::protobuf::RepeatedPtrField<proto::LabelSelector>* out) {
  for (const LabelSelector& selector : selectors) FillSelector(selector, out->Add());
}

proto::TaskTemplate BuildTemplate(const FunctionRecord& function, const Options& options,
                                  uint32_t results) {
  proto::TaskTemplate spec;
  spec.set_language(function.python ? proto::JobStart::PYTHON : proto::JobStart::CPP);
  spec.set_function(function.key);
  spec.set_name(function.name);
  if (function.kind != FunctionRecord::Kind::kConstructor) spec.set_call_name(options.name);
  spec.set_num_returns(function.streaming ? 0 : results);
  spec.set_streaming(function.streaming);
  spec.set_max_unconsumed(options.max_unconsumed);
  spec.set_max_unconsumed_bytes(options.max_unconsumed_bytes);
  spec.set_retry_exceptions(options.retry_exceptions);
  if (options.max_retries && *options.max_retries < -1)
    throw InvalidArgumentError("retries are -1 (without bound) or more");
  const TemplateExtra extra{options.retry_rule, function.class_key};
  switch (function.kind) {
    case FunctionRecord::Kind::kFunction:
      spec.set_kind(proto::TaskTemplate::TASK);
      spec.set_max_retries(options.max_retries.value_or(kDefaultRetries));
      spec.set_max_calls(options.max_calls);
      FillLease(function, options, spec.mutable_lease());
      break;
    case FunctionRecord::Kind::kConstructor:
      spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
      FillLease(function, options, spec.mutable_lease());
      FillActor(function, options, spec.mutable_actor());
      break;
    case FunctionRecord::Kind::kMethod:
      spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
      spec.set_max_retries(options.max_retries.value_or(kRetriesOfActor));
      spec.set_concurrency_group(options.concurrency_group.empty() ? function.group
                                                                   : options.concurrency_group);
      break;
  }
  if (!function.python) spec.set_extra(Serialize(extra));
  return spec;
}

void SetRunningStrategy(const proto::Strategy& strategy) {
  const bool in_group = !strategy.group_id().empty();
  if (!in_group && !runs_in_group.load(std::memory_order_relaxed)) [[likely]]
    return;
  const bool passes_on = strategy.capture_children();
  Inherited& inherited = TheInherited();
  const MutexLock lock(inherited.mutex);
  inherited.running_in = strategy.group_id();
  runs_in_group.store(in_group, std::memory_order_relaxed);
  if (passes_on && inherited.strategy.group_id() != strategy.group_id()) {
    inherited.strategy.Clear();
    inherited.strategy.set_kind(proto::Strategy::PLACEMENT_GROUP);
    inherited.strategy.set_group_id(strategy.group_id());
    inherited.strategy.set_bundle(-1);
    inherited.strategy.set_capture_children(true);
    ++inherited.number;
  }
  inherited_number.store(passes_on ? inherited.number : 0, std::memory_order_release);
}

PlacementGroupId RunningGroup() {
  if (!runs_in_group.load(std::memory_order_relaxed)) return {};
  Inherited& inherited = TheInherited();
  const MutexLock lock(inherited.mutex);
  return PlacementGroupId::FromBinary(inherited.running_in).value_or(PlacementGroupId());
}

const TemplateHandle& TemplateOf(const FunctionRecord& function, OptionHolder& options,
                                 uint32_t results) {
  if (options.options() == nullptr) {
    if (inherited_number.load(std::memory_order_acquire) != 0) [[unlikely]]
      return InheritingTemplateOf(function, results);
    const Prepared* prepared =
        static_cast<const Prepared*>(function.prepared.load(std::memory_order_acquire));
    if (IsCurrent(prepared, results)) [[likely]]
      return prepared->handle;
    // Two threads may both make one: the later is used from then on, both mean the same.
    prepared = KeepForever(Prepare(function, Options(), results));
    function.prepared.store(prepared, std::memory_order_release);
    return prepared->handle;
  }
  std::shared_ptr<const void>& held = options.prepared();
  if (!IsCurrent(static_cast<const Prepared*>(held.get()), results)) {
    held = std::make_shared<const Prepared>(Prepare(function, *options.options(), results));
  }
  return static_cast<const Prepared*>(held.get())->handle;
}

}  // namespace sheaf::inline v1::internal
