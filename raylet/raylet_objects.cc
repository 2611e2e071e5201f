// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects between nodes: what processes of this one want from others, what others fetch from here,
// and what becomes of a copy. And what running calls hold as arguments (argument_ledger.h).
//
// A copy belongs to the object's owner, who is told of it, frees it with the object, and is told
// again now and then: an owner that does not know the object any more answers with a free. When the
// owner is dead a copy is kept as an adopted object is: as long as somebody on this node holds the
// reference.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr Nanos kTellAgain = 10 * kSecond;
// Who waits so long for room in the store does not only wait for the disk.
constexpr Nanos kShortAfter = kSecond;

template <class T>
std::vector<T> ItemsOf(std::string_view body) {  // Copied once: the sender can still write there.
  const std::span<const T> items = FrameItems<T>(body);
  return {items.begin(), items.end()};
}

}  // namespace

absl::Status Raylet::OnStoreFetch(ProcessId from, const Frame& frame) {
  std::vector<LocatedObject> coming;
  const auto is_coming = [&](ObjectId id) {
    coming.push_back({.id = id, .location = {}, .outcome = LookupOutcome::kComing, .flags = 0});
  };
  for (const FetchWanted& wanted : ItemsOf<FetchWanted>(frame.body)) {
    const auto here = world_.store.Describe(wanted.id);
    const bool have = here.ok() && (!wanted.hint.known() || here->attempt >= wanted.hint.attempt);
    if (have || wanted.hint.node == options_.node || from.node != options_.node) {
      // The answer may take its time, to the disk and back.
      if (here.ok() && from.node != options_.node) is_coming(wanted.id);
      world_.store.Locate(from, wanted.id, wanted.hint);
      continue;
    }
    const bool there = wanted.hint.node != 0 && !IsNodeDead(wanted.hint.node);
    const std::vector<NodeNumber> places = orphans_.PlacesOf(wanted.id);
    if (!there && places.empty()) {
      AnswerFetch(from, wanted.id, LookupOutcome::kNotFound);
      continue;
    }
    if (!fetchers_[wanted.id].insert(from).second) is_coming(wanted.id);
    if (there) puller_.Pull(wanted.id, wanted.hint, wanted.size);
    for (const NodeNumber place : places) puller_.Pull(wanted.id, {.node = place}, wanted.size);
  }
  for (size_t at = 0; at < coming.size() && MayHear(from); at += kMaxStoreItems) {
    const auto some = std::span<const LocatedObject>(coming).subspan(at);
    To(from).Send(Lane::kControl, kStoreLocated,
                  ItemsAsBytes(some.first(std::min(kMaxStoreItems, some.size()))));
  }
  return absl::OkStatus();
}

// The arguments of a call that starts on a worker, or what became of it.
absl::Status Raylet::OnStoreHold(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<HoldHead>(frame.body);
  if (mapped == nullptr) return absl::InvalidArgumentError("a call's arguments without their head");
  const HoldHead head = *mapped;  // Once: the sender can still write there.
  const ArgumentLedger::Call call{from, head.ticket};
  switch (head.step) {
    case HoldStep::kAsk:
      break;
    case HoldStep::kSuspend:
    case HoldStep::kResume:
      arguments_.SetSuspended(call, head.step == HoldStep::kSuspend);
      return absl::OkStatus();
    case HoldStep::kEnd:
      arguments_.End(call, Now());
      return absl::OkStatus();
    default:
      return absl::OkStatus();  // Of a newer peer.
  }
  std::vector<HeldObject> objects = ItemsOf<HeldObject>(frame.body.substr(sizeof head));
  if (objects.size() < head.count) return absl::InvalidArgumentError("arguments that are cut off");
  objects.resize(head.count);
  for (HeldObject& object : objects) {
    if (const auto here = world_.store.Describe(object.id); here.ok())
      object.bytes = here->size_bytes;
  }
  if (!arguments_.Ask(call, ProcessId::Unpack(head.caller), objects, Now()))
    return absl::InvalidArgumentError("arguments of more calls than a process can run");
  return absl::OkStatus();
}

void Raylet::AdmitArguments() {
  const Nanos now = Now();
  const Nanos short_since = world_.store.ShortSince();
  const bool is_short = short_since != kForever && now - short_since >= kShortAfter;
  for (const auto& [process, ticket] : arguments_.Admit(now, is_short))
    To(process).Send(Lane::kControl, kStoreHeld, AsBytes(HoldAdmitted{ticket}));
}

void Raylet::AnswerFetch(ProcessId asker, ObjectId id, LookupOutcome outcome) {
  if (!IsAlive(asker)) return;
  const LocatedObject answer{.id = id, .location = {}, .outcome = outcome, .flags = 0};
  To(asker).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
}

absl::Status Raylet::OnRemoteStoreFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == kStoreFree) {
    world_.store.OnRemoteFree(from, ItemsOf<ObjectName>(frame.body));
  } else if (frame.kind == kStoreFetch) {
    return OnStoreFetch(from, frame);
  }
  return absl::OkStatus();
}

void Raylet::OnFetch(NodeNumber reader, std::string_view request, ObjectServer::Respond respond) {
  if (IsNodeDead(reader)) return respond(absl::UnavailableError("declared dead"));
  server_.OnFetch(reader, request, std::move(respond));
  Settle();
}

void Raylet::SettleObjects() {
  for (std::vector<ObjectPuller::Finished> finished = puller_.TakeFinished(); !finished.empty();
       finished = puller_.TakeFinished()) {
    for (const ObjectPuller::Finished& pull : finished) {
      const bool found = pull.outcome == LookupOutcome::kFound;
      if (found) {
        if (copies_.empty()) next_tell_copies_ = Now() + kTellAgain;
        copies_.insert(pull.id);
        TellOwnerOfCopy(pull.id);
      }
      const auto asked = fetchers_.extract(pull.id);
      // Those who have it live, as far as is known: who wants it still asks again, for a new pull.
      if (pull.stalled) continue;
      if (!asked.empty()) {
        if (!found && pull.outcome != LookupOutcome::kFull) orphans_.PlacesFailed(pull.id);
        for (const ProcessId asker : asked.mapped()) {
          if (!found) {
            AnswerFetch(asker, pull.id, pull.outcome);
          } else if (IsAlive(asker)) {
            world_.store.Locate(asker, pull.id, {});
          }
        }
      }
    }
  }
}

void Raylet::TellOwnerOfCopy(ObjectId id) {
  const ProcessId owner = id.maker();
  const auto location = world_.store.Locate(id);
  if (!location.ok()) return;
  if (!IsDeadOwner(owner)) {
    const ObjectName name{id, *location};
    To(owner).Send(Lane::kControl, kStoreCopied, AsBytes(name));
    return;
  }
  if (references_.IsHeld(id)) {
    Adopt({id});
  } else {
    world_.store.Free(id);
  }
}

// What an owner did not hear, or freed while the copy was coming, is put right here, some copies at
// a time.
void Raylet::TellOwnersAgain() {
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
    if (IsDeadOwner(id.maker())) {
      if (!adopted_.contains(id) && !orphaned_.contains(id.maker())) of_the_dead.push_back(id);
    } else if (const auto location = world_.store.Locate(id); location.ok()) {
      names[id.maker()].push_back({id, *location});
    }
  }
  if (copy == copies_.end()) told_up_to_ = {};
  for (const ObjectId id : of_the_dead) TellOwnerOfCopy(id);
  for (const auto& [owner, of_one] : names) {
    To(owner).Send(Lane::kControl, kStoreCopied, ItemsAsBytes(std::span<const ObjectName>(of_one)));
  }
}

void Raylet::TickObjects() {
  puller_.Tick();
  server_.Tick();
  TellOwnersAgain();
  std::vector<ProcessId> over;
  for (const auto& [owner, until] : orphaned_) {
    if (until <= Now()) over.push_back(owner);
  }
  for (const ProcessId owner : over) {
    orphaned_.erase(owner);
    const std::vector<ObjectId> objects = LearnObjectsOf(owner);
    for (const ObjectId id : objects) {
      if (!references_.IsHeld(id)) Disown(id);
    }
    Adopt(objects);
    world_.store.Adopt(owner, [this](ObjectId id) { return adopted_.contains(id); });
  }
}

void Raylet::OnObjectsOfNodeGone(NodeNumber node) {
  puller_.NodeGone(node);
  // Copies of what its processes owned.
  absl::btree_set<ProcessId> owners;
  world_.store.ForEach([&](const StoreObjectInfo& object) {
    if (object.id.maker().node == node) owners.insert(object.id.maker());
  });
  for (const ProcessId owner : owners) AdoptObjectsOf(owner);
}

void Raylet::OnFetcherGone(ProcessId process) {
  absl::erase_if(adopted_questions_,
                 [&](const auto& entry) { return entry.first.first == process; });
  std::vector<ObjectId> unwanted;
  for (auto& [id, askers] : fetchers_) {
    if (askers.erase(process) != 0 && askers.empty()) unwanted.push_back(id);
  }
  for (const ObjectId id : unwanted) {
    fetchers_.erase(id);
    puller_.Cancel(id);
  }
}

ArgumentBytes Raylet::ArgumentBytesOf(const proto::LeaseDemand& demand) {
  ArgumentBytes bytes;
  for (int i = 0; i < std::min(demand.argument_nodes_size(), demand.argument_node_bytes_size());
       ++i) {
    bytes.emplace_back(demand.argument_nodes(i), demand.argument_node_bytes(i));
  }
  return bytes;
}

}  // namespace sheaf
