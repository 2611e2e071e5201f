// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/object_transfers.h"

#include <algorithm>
#include <cstring>
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

// A block that this node serves to itself.
class OwnBlock final : public ReceivedBlock {
 public:
  explicit OwnBlock(Block block) : block_(std::move(block)) {}
  const std::string& head() const override { return block_.head; }
  uint64_t size() const override { return block_.bytes.size(); }
  absl::Status CopyTo(std::span<char> to) override {
    std::memcpy(to.data(), block_.bytes.data(), std::min(to.size(), block_.bytes.size()));
    return absl::OkStatus();
  }

 private:
  const Block block_;
};

}  // namespace

void ObjectTransfers::AnyBlocks::Fetch(NodeNumber node, std::string request, Nanos timeout,
                                       Done done) {
  if (node != transfers_.deps_.node) {
    return transfers_.deps_.blocks.Fetch(node, std::move(request), timeout, std::move(done));
  }
  transfers_.server_.OnFetch(node, request, [done = std::move(done)](absl::StatusOr<Block> block) {
    if (!block.ok()) return done(block.status());
    done(std::make_unique<OwnBlock>(*std::move(block)));
  });
}

ObjectTransfers::ObjectTransfers(const Deps& deps)
    : deps_(deps),
      blocks_(*this),
      puller_(PullsOf(deps.node, deps.store), {.clock = deps.clock,
                                               .store = deps.store,
                                               .blocks = blocks_,
                                               .loop = deps.loop,
                                               .copier = deps.copier}),
      server_({.clock = deps.clock, .store = deps.store, .puller = puller_}) {}

absl::Status ObjectTransfers::OnFetch(ProcessId from, const Frame& frame) {
  std::vector<ObjectId> coming;
  const std::span<const FetchWanted> mapped = FrameItems<FetchWanted>(frame.body);
  // Copied once: the sender can still write there.
  for (const FetchWanted& wanted : std::vector<FetchWanted>(mapped.begin(), mapped.end())) {
    const auto here = deps_.store.Describe(wanted.id);
    const bool have = here.ok() && (!wanted.hint.known() || here->attempt >= wanted.hint.attempt);
    if (have || wanted.hint.node == deps_.node || from.node != deps_.node) {
      // The answer may take its time, to the disk and back.
      if (here.ok() && from.node != deps_.node) coming.push_back(wanted.id);
      deps_.store.Locate(from, wanted.id, wanted.hint);
      continue;
    }
    const bool there = wanted.hint.node != 0 && !deps_.deaths.IsNodeDead(wanted.hint.node);
    const std::vector<NodeNumber> places = deps_.adoption.PlacesOf(wanted.id);
    if (!there && places.empty()) {
      Answer(from, wanted.id, LookupOutcome::kNotFound);
      continue;
    }
    if (!fetchers_[wanted.id].insert(from).second) coming.push_back(wanted.id);
    if (there) puller_.Pull(wanted.id, wanted.hint, wanted.size);
    for (const NodeNumber place : places) puller_.Pull(wanted.id, {.node = place}, wanted.size);
  }
  TellComing(from, coming);
  return absl::OkStatus();
}

absl::Status ObjectTransfers::OnPart(ProcessId from, const Frame& frame) {
  std::vector<ObjectId> coming;
  const std::span<const PartWanted> mapped = FrameItems<PartWanted>(frame.body);
  // Copied once: the sender can still write there.
  const std::vector<PartWanted> parts(mapped.begin(), mapped.end());
  for (const PartWanted& wanted : parts) {
    if (wanted.id.maker() != from || wanted.id == wanted.of)
      return absl::InvalidArgumentError("a part under a name of others");
  }
  for (const PartWanted& wanted : parts) WantPart(from, wanted, &coming);
  TellComing(from, coming);
  return absl::OkStatus();
}

void ObjectTransfers::WantPart(ProcessId from, const PartWanted& wanted,
                               std::vector<ObjectId>* coming) {
  if (wanted.cancel != 0) {  // Its asker has forgotten it, so there is no answer.
    fetchers_.erase(wanted.id);
    puller_.Cancel(wanted.id);
    deps_.store.Free(wanted.id);
    return;
  }
  if (wanted.bytes == 0 || wanted.bytes > kMaxPayloadBytes ||
      wanted.offset > kMaxPayloadBytes - wanted.bytes) {
    return Answer(from, wanted.id, LookupOutcome::kOutOfRange);
  }
  if (wanted.bytes > deps_.store.Stats().capacity_bytes)
    return Answer(from, wanted.id, LookupOutcome::kFull);
  if (deps_.store.Contains(wanted.id)) return deps_.store.Locate(from, wanted.id, {});
  std::vector<NodeNumber> places;
  const NodeNumber named = wanted.hint.node;
  if (named == deps_.node || deps_.store.Contains(wanted.of)) places.push_back(deps_.node);
  if (named != 0 && named != deps_.node && !deps_.deaths.IsNodeDead(named)) places.push_back(named);
  for (const NodeNumber place : deps_.adoption.PlacesOf(wanted.of)) {
    if (place != deps_.node) places.push_back(place);
  }
  if (places.empty()) return Answer(from, wanted.id, LookupOutcome::kNotFound);
  if (!fetchers_[wanted.id].insert(from).second) coming->push_back(wanted.id);
  puller_.PullPart(wanted, places);
}

void ObjectTransfers::TellComing(ProcessId asker, std::span<const ObjectId> ids) {
  if (!deps_.deaths.IsReachable(asker)) return;
  for (size_t at = 0; at < ids.size(); at += kMaxStoreItems) {
    std::vector<LocatedObject> some;
    for (const ObjectId id : ids.subspan(at, std::min(kMaxStoreItems, ids.size() - at))) {
      some.push_back({.id = id, .location = {}, .outcome = LookupOutcome::kComing, .flags = 0});
    }
    deps_.transport.To(asker).Send(Lane::kControl, kStoreLocated,
                                   ItemsAsBytes(std::span<const LocatedObject>(some)));
  }
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
    for (const ObjectPuller::Finished& pull : finished)
      pull.part_of.is_nil() ? OnFinished(pull) : OnPartFinished(pull);
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

// A part is no copy of anything: it is the object of who asked for it, who frees it.
void ObjectTransfers::OnPartFinished(const ObjectPuller::Finished& pull) {
  const auto asked = fetchers_.extract(pull.id);
  const bool gone =
      pull.outcome == LookupOutcome::kNotFound || pull.outcome == LookupOutcome::kDataLoss;
  if (gone && !pull.stalled) deps_.adoption.PlacesFailed(pull.part_of);
  const bool wanted = !asked.empty() && deps_.deaths.IsAlive(*asked.mapped().begin());
  if (!wanted) {
    deps_.store.Free(pull.id);
  } else if (pull.outcome == LookupOutcome::kFound) {
    deps_.store.Locate(*asked.mapped().begin(), pull.id, {});
  } else if (!pull.stalled) {
    Answer(*asked.mapped().begin(), pull.id, pull.outcome);
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
