// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects between nodes: what processes of this one want from others, what others fetch from here,
// and what becomes of a copy.
//
// A copy belongs to the object's owner, who is told of it, frees it with the object, and is told
// again now and then: an owner that does not know the object any more answers with a free. When the
// owner is dead a copy is kept as an adopted object is: as long as somebody on this node holds the
// reference.
#include <algorithm>
#include <utility>

#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "object_store/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr Nanos kTellAgain = 10 * kSecond;
constexpr size_t kMostAdoptedQueries = 10'000;

template <class T>
std::vector<T> ItemsOf(std::string_view body) {  // Copied once: the sender can still write there.
  const std::span<const T> items = FrameItems<T>(body);
  return {items.begin(), items.end()};
}

}  // namespace

absl::Status Raylet::OnStoreFetch(ProcessId from, const Frame& frame) {
  for (const FetchWanted& wanted : ItemsOf<FetchWanted>(frame.body)) {
    const auto here = world_.store.Describe(wanted.id);
    const bool have = here.ok() && (!wanted.hint.known() || here->attempt >= wanted.hint.attempt);
    if (have || wanted.hint.node == options_.node || from.node != options_.node) {
      world_.store.Locate(from, wanted.id, wanted.hint);
      continue;
    }
    if (wanted.hint.node == 0 || IsNodeDead(wanted.hint.node)) {
      AnswerFetch(from, wanted.id, LookupOutcome::kNotFound);
      continue;
    }
    fetchers_[wanted.id].insert(from);
    puller_.Pull(wanted.id, wanted.hint, wanted.size);
  }
  return absl::OkStatus();
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
      if (!asked.empty()) {
        for (const ProcessId asker : asked.mapped()) {
          if (!found) {
            AnswerFetch(asker, pull.id, pull.outcome);
          } else if (IsAlive(asker)) {
            world_.store.Locate(asker, pull.id, {});
          }
        }
      }
      AnswerAdopted(pull.id);
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
      if (!adopted_.contains(id)) of_the_dead.push_back(id);
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
  while (!orphaned_.empty() && orphaned_.front().first <= Now()) {
    const ProcessId owner = orphaned_.front().second;
    orphaned_.pop_front();
    Adopt(LearnObjectsOf(owner));
    world_.store.Adopt(owner, [this](ObjectId id) { return adopted_.contains(id); });
  }
}

bool Raylet::HasOtherNodes() const {
  return std::any_of(view_.nodes.begin(), view_.nodes.end(), [this](const auto& entry) {
    return entry.first != options_.node && entry.second.alive;
  });
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
  absl::erase_if(adopted_queries_, [&](const auto& query) { return query.first.first == process; });
  std::vector<ObjectId> unwanted;
  for (auto& [id, askers] : fetchers_) {
    if (askers.erase(process) != 0 && askers.empty()) unwanted.push_back(id);
  }
  for (const ObjectId id : unwanted) {
    fetchers_.erase(id);
    const std::string name = id.Binary();
    const bool asked_about = std::any_of(
        adopted_queries_.begin(), adopted_queries_.end(),
        [&](const auto& query) { return query.first.second.find(name) != std::string::npos; });
    if (!asked_about) puller_.Cancel(id);
  }
}

absl::Status Raylet::OnAdoptedQuery(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto query, ParseFrame<proto::AdoptedQuery>(frame));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, ParseIds(query.ids()));
  // What is not here may be where its owner was.
  bool pulls = false;
  for (const ObjectId id : ids) {
    const NodeNumber node = id.maker().node;
    if (world_.store.Contains(id) || node == options_.node || node == 0 || IsNodeDead(node) ||
        adopted_queries_.size() >= kMostAdoptedQueries) {
      continue;
    }
    pulls = true;
    puller_.Pull(id, {.node = node}, 0);
  }
  if (!pulls) {
    SendAdopted(from, query);
    return absl::OkStatus();
  }
  const std::string names = query.ids();
  adopted_queries_[{from, names}] = std::move(query);  // Asked again: the last is answered.
  return absl::OkStatus();
}

void Raylet::SendAdopted(ProcessId to, const proto::AdoptedQuery& query) {
  proto::AdoptedAnswer answer;
  answer.set_request(query.request());
  answer.set_ids(query.ids());
  const absl::StatusOr<std::vector<ObjectId>> ids = ParseIds(query.ids());  // Checked before.
  for (const ObjectId id : *ids) answer.add_adopted(world_.store.Contains(id));
  SendMessage(To(to), FrameKind::kAdoptedAnswer, answer);
}

// The pull of `id` is over: who waits for nothing else gets the answer.
void Raylet::AnswerAdopted(ObjectId id) {
  const std::string name = id.Binary();
  absl::erase_if(adopted_queries_, [&](const auto& entry) {
    const auto& [key, query] = entry;
    bool concerned = false, pulling = false;
    for (size_t at = 0; at + name.size() <= key.second.size(); at += name.size()) {
      const std::string_view one = std::string_view(key.second).substr(at, name.size());
      concerned |= one == name;
      pulling |= puller_.IsPulling(*ObjectId::FromBinary(one));
    }
    if (!concerned || pulling) return false;
    if (IsAlive(key.first)) SendAdopted(key.first, query);
    return true;
  });
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
