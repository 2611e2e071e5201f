// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/object_transfers.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

constexpr Nanos kTellAgain = 10 * kSecond;

ObjectPullerOptions PullsOf(NodeNumber node, const StoreServer& store) {
  ObjectPullerOptions options;
  options.node = node;
  options.most_bytes = std::min(options.most_bytes, store.Stats().capacity_bytes / 4);
  return options;
}

}  // namespace

ObjectTransfers::ObjectTransfers(const Deps& deps)
    : deps_(deps),
      puller_(PullsOf(deps.node, deps.store), {.clock = deps.clock,
                                               .store = deps.store,
                                               .blocks = deps.blocks,
                                               .loop = deps.loop,
                                               .copier = deps.copier}),
      server_(
          {.clock = deps.clock, .store = deps.store, .puller = puller_, .copier = deps.copier}) {}

absl::Status ObjectTransfers::OnFetch(ProcessId from, const Frame& frame) {
  std::vector<LocatedObject> coming;
  const auto is_coming = [&](ObjectId id) {
    coming.push_back({.id = id, .location = {}, .outcome = LookupOutcome::kComing, .flags = 0});
  };
  const std::span<const FetchWanted> mapped = FrameItems<FetchWanted>(frame.body);
  // Copied once: the sender can still write there.
  for (const FetchWanted& wanted : std::vector<FetchWanted>(mapped.begin(), mapped.end())) {
    const auto here = deps_.store.Describe(wanted.id);
    const bool have = here.ok() && (!wanted.hint.known() || here->attempt >= wanted.hint.attempt);
    if (have || wanted.hint.node == deps_.node || from.node != deps_.node) {
      // The answer may take its time, to the disk and back.
      if (here.ok() && from.node != deps_.node) is_coming(wanted.id);
      deps_.store.Locate(from, wanted.id, wanted.hint);
      continue;
    }
    const bool there = wanted.hint.node != 0 && !deps_.deaths.IsNodeDead(wanted.hint.node);
    const std::vector<NodeNumber> places = deps_.adoption.PlacesOf(wanted.id);
    if (!there && places.empty()) {
      Answer(from, wanted.id, LookupOutcome::kNotFound);
      continue;
    }
    if (!fetchers_[wanted.id].insert(from).second) is_coming(wanted.id);
    if (there) puller_.Pull(wanted.id, wanted.hint, wanted.size);
    for (const NodeNumber place : places) puller_.Pull(wanted.id, {.node = place}, wanted.size);
  }
  for (size_t at = 0; at < coming.size() && deps_.deaths.IsReachable(from); at += kMaxStoreItems) {
    const auto some = std::span<const LocatedObject>(coming).subspan(at);
    deps_.transport.To(from).Send(Lane::kControl, kStoreLocated,
                                  ItemsAsBytes(some.first(std::min(kMaxStoreItems, some.size()))));
  }
  return absl::OkStatus();
}

void ObjectTransfers::Answer(ProcessId asker, ObjectId id, LookupOutcome outcome) {
  if (!deps_.deaths.IsAlive(asker)) return;
  const LocatedObject answer{.id = id, .location = {}, .outcome = outcome, .flags = 0};
  deps_.transport.To(asker).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
}

void ObjectTransfers::OnBlockRequest(NodeNumber reader, std::string_view request,
                                     ObjectServer::Respond respond) {
  if (deps_.deaths.IsNodeDead(reader)) return respond(absl::UnavailableError("declared dead"));
  server_.OnFetch(reader, request, std::move(respond));
}

void ObjectTransfers::Settle() {
  for (std::vector<ObjectPuller::Finished> finished = puller_.TakeFinished(); !finished.empty();
       finished = puller_.TakeFinished()) {
    for (const ObjectPuller::Finished& pull : finished) OnFinished(pull);
  }
}

void ObjectTransfers::OnFinished(const ObjectPuller::Finished& pull) {
  const bool found = pull.outcome == LookupOutcome::kFound;
  if (found) {
    if (copies_.empty()) next_tell_copies_ = Now() + kTellAgain;
    copies_.insert(pull.id);
    TellOwnerOf(pull.id);
  }
  const auto asked = fetchers_.extract(pull.id);
  // Those who have it live, as far as is known: who wants it still asks again, for a new pull.
  if (pull.stalled || asked.empty()) return;
  if (!found && pull.outcome != LookupOutcome::kFull) deps_.adoption.PlacesFailed(pull.id);
  for (const ProcessId asker : asked.mapped()) {
    if (!found) {
      Answer(asker, pull.id, pull.outcome);
    } else if (deps_.deaths.IsAlive(asker)) {
      deps_.store.Locate(asker, pull.id, {});
    }
  }
}

void ObjectTransfers::TellOwnerOf(ObjectId copy) {
  const ProcessId owner = copy.maker();
  const auto location = deps_.store.Locate(copy);
  if (!location.ok()) return;
  if (!deps_.deaths.IsDead(owner)) {
    const ObjectName name{copy, *location};
    deps_.transport.To(owner).Send(Lane::kControl, kStoreCopied, AsBytes(name));
    return;
  }
  if (deps_.references.IsHeld(copy)) {
    deps_.adoption.Adopt({copy});
  } else {
    deps_.store.Free(copy);
  }
}

// What an owner did not hear, or freed while the copy was coming, is put right here, some copies at
// a time.
void ObjectTransfers::TellOwnersAgain() {
  const Nanos now = Now();
  auto copy = copies_.upper_bound(told_up_to_);
  if (copy == copies_.begin()) {  // A new round.
    if (now < next_tell_copies_ || copies_.empty()) return;
    next_tell_copies_ = now + kTellAgain;
  }
  absl::btree_map<ProcessId, std::vector<ObjectName>> names;
  std::vector<ObjectId> of_the_dead;
  for (size_t i = 0; i < kMaxStoreItems && copy != copies_.end(); ++i, ++copy) {
    const ObjectId id = told_up_to_ = *copy;
    if (deps_.deaths.IsDead(id.maker())) {
      if (!deps_.adoption.IsAdopted(id) && !deps_.adoption.IsInGrace(id.maker())) {
        of_the_dead.push_back(id);
      }
    } else if (const auto location = deps_.store.Locate(id); location.ok()) {
      names[id.maker()].push_back({id, *location});
    }
  }
  if (copy == copies_.end()) told_up_to_ = {};
  for (const ObjectId id : of_the_dead) TellOwnerOf(id);
  for (const auto& [owner, of_one] : names) {
    deps_.transport.To(owner).Send(Lane::kControl, kStoreCopied,
                                   ItemsAsBytes(std::span<const ObjectName>(of_one)));
  }
}

void ObjectTransfers::Tick() {
  puller_.Tick();
  server_.Tick();
  TellOwnersAgain();
}

void ObjectTransfers::OnGone(ObjectId id) {
  if (!deps_.store.Contains(id)) copies_.erase(id);
}

void ObjectTransfers::OnProcessGone(ProcessId process) {
  std::vector<ObjectId> unwanted;
  for (auto& [id, askers] : fetchers_) {
    if (askers.erase(process) != 0 && askers.empty()) unwanted.push_back(id);
  }
  for (const ObjectId id : unwanted) {
    fetchers_.erase(id);
    puller_.Cancel(id);
  }
}

}  // namespace sheaf
