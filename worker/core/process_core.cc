// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/process_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<ProcessCore>> ProcessCore::Open(Deps deps, UniqueFd arena) {
  std::unique_ptr<ProcessCore> core(new ProcessCore(deps));
  SHEAF_ASSIGN_OR_RETURN(
      core->store, StoreClient::Open(deps.self, std::move(arena), deps.segment, core->raylet(),
                                     [core = core.get()](ObjectId id, auto location) {
                                       core->OnLocated(id, location);
                                     }));
  core->executor.set_store_bytes(core->store->capacity_bytes());
  return core;
}

ProcessCore::ProcessCore(Deps& deps)
    : self(deps.self),
      events(deps.events ? std::make_unique<telemetry::EventWriter>(
                               telemetry::EventPageOf(deps.segment->data()))
                         : nullptr),
      transport(deps.self, deps.rings, std::move(deps.ring_self), deps.limits),
      owner(
          deps.self, deps.clock, transport, *this,
          [this](std::span<const ObjectId> ids) { store->Lookup(ids); }, deps.limits),
      parts(deps.self, deps.clock, transport, owner.references, owner.resolver),
      gcs(deps.self, deps.clock, deps.rings),
      executor(deps.self, deps.clock, transport, owner.references, owner.transits, deps.executions,
               reinterpret_cast<ProcessPage*>(deps.segment->data()),
               metrics::PageOf(deps.segment->data()), deps.limits),
      blocked_calls(deps.self, deps.rings, executor),
      actor_directory(owner, gcs),
      groups(deps.self, deps.rings),
      dispatch(*this, deps.frames),
      clock_(deps.clock),
      rings_(deps.rings),
      limits_(deps.limits),
      object_bytes_(metrics::PageOf(deps.segment->data()), metrics::HistogramId::kObjectBytes) {
  executor.set_events(events.get());
  metrics::Page& figures = metrics::PageOf(deps.segment->data());
  owner.tasks.set_figures(metrics::Histogram(figures, metrics::HistogramId::kTaskLatency),
                          metrics::Histogram(figures, metrics::HistogramId::kActorCallLatency),
                          events.get());
}

ProcessCore::~ProcessCore() = default;

ObjectLocation ProcessCore::Promote(ObjectId id, std::string_view bytes,
                                    std::span<const ObjectId> nested) {
  ObjectSpec spec;
  spec.id = id;
  spec.size_bytes = bytes.size();
  spec.nested = nested;
  absl::StatusOr<ObjectLocation> location = store->Put(spec, bytes);
  if (location.ok()) return *location;
  store->CancelCreate(id);  // Only wanted now; the owner answers for it meanwhile.
  return {};
}

void ProcessCore::OnLocated(ObjectId id, const absl::StatusOr<ObjectLocation>& location) {
  if (parts.OnLocated(id, location)) return;
  if (location.ok()) return owner.resolver.OnLocated(id, &*location, {});
  if (absl::IsUnavailable(location.status())) return owner.resolver.OnComing(id);
  const ErrorKind kind = StoreErrorKind(location.status());
  const char* what = kind == ErrorKind::kObjectStoreFull ? " cannot be read now: " : " is lost: ";
  owner.resolver.OnLocated(
      id, nullptr,
      {kind, absl::StrCat("the object ", id.ToHex(), what, location.status().message()), {}});
}

void ProcessCore::HandleOwnFrames() {
  transport.loopback().HandOver([this](const Frame& frame) { dispatch.OnFrame(self, frame); });
}

bool ProcessCore::AfterFrames() {
  owner.references.CollectDropped();
  const bool promoted = owner.references.unpromoted() == 0 || PromoteLate();
  if (owner.resolver.holds_answers()) [[unlikely]]
    owner.resolver.AnswerKept();
  if (actor_directory.awaits_answers()) [[unlikely]]
    actor_directory.TakeAnswers();
  return promoted;
}

// What found no room in the store when its reference left is tried again when there may be some.
// False: it has not come to the end.
bool ProcessCore::PromoteLate() {
  const uint64_t version = store->room_version();
  if (version == promoted_at_) return true;
  if (!owner.references.PromoteAgain()) return false;
  promoted_at_ = version;
  return true;
}

bool ProcessCore::KeepHouse(size_t steps) {
  const bool more = owner.references.CollectDropped(steps);
  if (owner.references.unpromoted() == 0) return more;
  PromoteLate();
  return more || store->room_version() != promoted_at_;
}

void ProcessCore::Flush() {
  owner.references.Flush();
  store->Flush();
}

Nanos ProcessCore::AgeOf(ObjectId id) const {
  if (id.maker() != self) return 0;
  const Nanos now = clock_.Now();
  return now - sequence_times_.MadeBefore(id.sequence()).value_or(now);
}

Nanos ProcessCore::Tick() {
  if (const Nanos now = clock_.Now(); sequence_times_.IsDue(now))
    sequence_times_.Note(owner.references.NextSequence(), now);
  executor.argument_holds().Tick();
  return std::min({owner.Tick(), parts.Tick(), gcs.Tick(), executor.argument_holds().NextTick()});
}

}  // namespace sheaf
