// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/object_puller.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "raylet/objects/pull_state.h"

namespace sheaf {

using Stage = ObjectPuller::PullState::Stage;
using Chunk = ObjectPuller::PullState::Chunk;

ObjectPuller::ObjectPuller(const ObjectPullerOptions& options, Deps deps)
    : options_(options), deps_(deps), gate_(std::make_shared<LoopGate>(deps.loop)) {}

ObjectPuller::~ObjectPuller() {
  gate_->Close();
  for (const auto& [id, pull] : pulls_) pull->target->CloseAndWait();
}

void ObjectPuller::AddPeer(ObjectId id, NodeNumber node) {
  const auto found = pulls_.find(id);
  if (found == pulls_.end() || found->second->stage != Stage::kReceiving) return;
  found->second->sources.Add(node, /*partial=*/true);
}

void ObjectPuller::WaitForRoom(const PullPtr& pull) {
  pull->stage = Stage::kWaitingForRoom;
  deps_.store.BeginReceive(
      pull->arrival, options_.room_wait,
      [this, alive = std::weak_ptr<bool>(alive_), pull](absl::StatusOr<std::span<char>> room) {
        if (!alive.expired()) OnRoom(pull, room);
      });
}

proto::BlockRequest ObjectPuller::RequestFor(const PullState& pull, NodeNumber node,
                                             uint64_t offset, uint64_t length) const {
  proto::BlockRequest request;
  request.set_id(pull.of.Binary());
  request.set_part(pull.is_part());
  request.set_attempt(pull.attempt());
  request.set_any_attempt(!pull.source_attempt && !pull.hint.known());
  request.set_offset(pull.base + offset);
  request.set_length(length);
  if (pull.hint.known() && pull.hint.node == node) {
    request.set_slot(pull.hint.slot);
    request.set_generation(pull.hint.generation);
  }
  return request;
}

uint64_t ObjectPuller::ChunkLength(const PullState& pull, size_t chunk) const {
  const uint64_t offset = chunk * options_.chunk_bytes;
  return std::min(options_.chunk_bytes, pull.arrival.bytes() - offset);
}

void ObjectPuller::Ask(const PullPtr& pull) {
  if (!pull->coming.empty()) return;
  PullSource* chosen = pull->sources.ForFirst(deps_.clock.Now());
  if (chosen == nullptr) return FailIfHopeless(pull);
  const NodeNumber node = chosen->node;
  const uint64_t ask = pull->Asks(node, 0, deps_.clock.Now());
  const std::string request = RequestFor(*pull, node, 0, options_.chunk_bytes).SerializeAsString();
  deps_.blocks.Fetch(
      node, request, options_.fetch_timeout,
      [this, gate = gate_, alive = std::weak_ptr<bool>(alive_), pull, target = pull->target, ask,
       most = options_.chunk_bytes](absl::StatusOr<std::unique_ptr<ReceivedBlock>> answer) {
        if (answer.ok() && (*answer)->size() > most) {
          answer = absl::DataLossError("more bytes than were asked for");
        } else if (answer.ok()) {
          const absl::Status whole = target->Keep(ask, **answer);  // Until there is room.
          if (!whole.ok()) answer = whole;
        }
        auto kept = std::make_shared<decltype(answer)>(std::move(answer));
        gate->Post([this, alive, pull, ask, kept] {
          if (!alive.expired()) OnFirst(pull, ask, std::move(*kept));
        });
      });
}

void ObjectPuller::OnFirst(const PullPtr& pull, uint64_t ask,
                           absl::StatusOr<std::unique_ptr<ReceivedBlock>> answer) {
  const std::optional<PullState::Coming> coming = pull->Ends(ask);
  if (!coming || pull->stage != Stage::kAsking) return EndIfIdle(pull);
  const NodeNumber node = coming->node;
  proto::BlockHead head;
  if (!answer.ok()) {
    SourceFailed(*pull, node, coming->asked_at, answer.status());
  } else if (!head.ParseFromString((*answer)->head())) {
    SourceFailed(*pull, node, coming->asked_at, absl::DataLossError("a head that cannot be read"));
  } else if (Heed(*pull, node, head)) {
    const StoreServer::Arrival arrival{.id = pull->id,
                                       .attempt = head.attempt(),
                                       .flags = head.flags(),
                                       .size_bytes = head.size_bytes(),
                                       .nested_count = head.nested_count()};
    if (head.size_bytes() > kMaxPayloadBytes ||
        (*answer)->size() != std::min(options_.chunk_bytes, arrival.bytes())) {
      SourceFailed(*pull, node, coming->asked_at,
                   absl::DataLossError("not as many bytes as were asked for"));
    } else {
      pull->arrival = arrival;
      pull->source_attempt = head.attempt();
      pull->first = *std::move(answer);
      pull->first_from = node;
      pull->sources.Came(node, pull->first->size(), deps_.clock.Now() - coming->asked_at);
      ClaimInstead(*pull, arrival.bytes());
      return WaitForRoom(pull);
    }
  }
  Ask(pull);
}

void ObjectPuller::OnRoom(const PullPtr& pull, absl::StatusOr<std::span<char>> room) {
  if (pull->stage != Stage::kWaitingForRoom) return;
  if (!room.ok()) {
    pull->first.reset();
    return Fail(pull, LookupOutcome::kFull);
  }
  pull->stage = Stage::kReceiving;
  pull->progress_at = deps_.clock.Now();
  pull->data = room->data();
  pull->target->PointTo(room->data());
  const uint64_t bytes = pull->arrival.bytes();
  const size_t count = (bytes + options_.chunk_bytes - 1) / options_.chunk_bytes;
  pull->chunks.assign(count, Chunk::kMissing);
  pull->missing = count;
  if (count == 0) return Complete(pull);
  // Nodes that begin together begin at different places, so that they have something to give each
  // other.
  pull->cursor = size_t{options_.node} * 7919 % count;
  if (pull->first == nullptr) return Pump(pull);
  pull->chunks[0] = Chunk::kComing;
  const uint64_t ask = pull->Asks(pull->first_from, 0, deps_.clock.Now());
  pull->coming.back().is_here = true;
  const std::shared_ptr<ReceivedBlock> first = std::move(pull->first);
  if (first->size() <= PullState::kCopiedAtOnce) {
    OnChunk(pull, ask, pull->target->Write(ask, 0, *first), {});
    return;
  }
  deps_.copier.Post([this, gate = gate_, alive = std::weak_ptr<bool>(alive_), pull,
                     target = pull->target, first, ask] {
    const absl::Status outcome = target->Write(ask, 0, *first);
    gate->Post([this, alive, pull, ask, outcome] {
      if (!alive.expired()) OnChunk(pull, ask, outcome, {});
    });
  });
  Pump(pull);
}

void ObjectPuller::Pump(const PullPtr& pull) {
  const uint32_t most = pull->source_attempt ? options_.chunks_in_flight : 1;
  while (pull->stage == Stage::kReceiving && pull->coming.size() < most && AskForOne(pull)) {
  }
  FailIfHopeless(pull);
}

std::optional<size_t> ObjectPuller::ChunkFor(const PullState& pull,
                                             const PullSource& source) const {
  if (source.partial && source.chunks.empty() && source.in_flight != 0) return std::nullopt;
  const size_t count = pull.chunks.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t chunk = (pull.cursor + i) % count;
    if (pull.chunks[chunk] != Chunk::kMissing) continue;
    if (source.MayHave(chunk)) return chunk;
  }
  return std::nullopt;
}

bool ObjectPuller::AskForOne(const PullPtr& pull) {
  const std::optional<PullSources::Choice> choice = pull->sources.ForChunk(
      [&](const PullSource& source) { return ChunkFor(*pull, source); }, deps_.clock.Now());
  if (!choice) return false;
  FetchChunk(pull, choice->source->node, choice->chunk);
  return true;
}

void ObjectPuller::FetchChunk(const PullPtr& pull, NodeNumber node, size_t chunk) {
  pull->chunks[chunk] = Chunk::kComing;
  pull->cursor = (chunk + 1) % pull->chunks.size();
  const uint64_t ask = pull->Asks(node, chunk, deps_.clock.Now());
  const uint64_t offset = chunk * options_.chunk_bytes;
  const uint64_t length = ChunkLength(*pull, chunk);
  deps_.blocks.Fetch(node, RequestFor(*pull, node, offset, length).SerializeAsString(),
                     options_.fetch_timeout,
                     [this, gate = gate_, alive = std::weak_ptr<bool>(alive_), pull,
                      target = pull->target, attempt = pull->source_attempt, ask, offset,
                      length](absl::StatusOr<std::unique_ptr<ReceivedBlock>> answer) {
                       // On any thread: of the pull only what does not change is looked at.
                       proto::BlockHead head;
                       absl::Status outcome = answer.status();
                       if (answer.ok() && !head.ParseFromString((*answer)->head())) {
                         outcome = absl::DataLossError("a head that cannot be read");
                       } else if (answer.ok() && head.outcome() == proto::BlockHead::FOUND) {
                         outcome = (*answer)->size() == length &&
                                           head.attempt() == attempt.value_or(head.attempt())
                                       ? target->Write(ask, offset, **answer)
                                       : absl::DataLossError("not the bytes that were asked for");
                       }
                       gate->Post([this, alive, pull, ask, outcome, head = std::move(head)] {
                         if (!alive.expired()) OnChunk(pull, ask, outcome, head);
                       });
                     });
}

void ObjectPuller::OnChunk(const PullPtr& pull, uint64_t ask, const absl::Status& outcome,
                           const proto::BlockHead& head) {
  const std::optional<PullState::Coming> coming = pull->Ends(ask);
  if (!coming || pull->stage != Stage::kReceiving) return EndIfIdle(pull);
  const NodeNumber node = coming->node;
  const size_t chunk = coming->chunk;
  pull->chunks[chunk] = Chunk::kMissing;
  if (!outcome.ok()) {
    SourceFailed(*pull, node, coming->asked_at, outcome);
  } else if (Heed(*pull, node, head)) {
    if (!pull->source_attempt) pull->source_attempt = head.attempt();
    pull->chunks[chunk] = Chunk::kHere;
    --pull->missing;
    const Nanos now = pull->progress_at = deps_.clock.Now();
    counts_.bytes += ChunkLength(*pull, chunk);
    if (PullSource* source = pull->sources.Find(node)) source->failures = source->damaged = 0;
    if (!coming->is_here)
      pull->sources.Came(node, ChunkLength(*pull, chunk), now - coming->asked_at);
    if (pull->missing == 0) return Complete(pull);
  }
  Pump(pull);
}

bool ObjectPuller::Heed(PullState& pull, NodeNumber node, const proto::BlockHead& head) {
  if (pull.sources.Heed(node, head, deps_.clock.Now()))
    return head.outcome() == proto::BlockHead::FOUND;
  if (head.outcome() == proto::BlockHead::DATA_LOSS) pull.why = LookupOutcome::kDataLoss;
  if (head.outcome() == proto::BlockHead::FULL) pull.why = LookupOutcome::kFull;
  if (head.outcome() == proto::BlockHead::OUT_OF_RANGE) pull.why = LookupOutcome::kOutOfRange;
  // Its disk has much to read; so it says each time that it is asked.
  if (head.outcome() == proto::BlockHead::NOT_YET && pull.is_part())
    pull.progress_at = deps_.clock.Now();
  ++counts_.failed_fetches;
  return false;
}

void ObjectPuller::SourceFailed(PullState& pull, NodeNumber node, Nanos asked_at,
                                const absl::Status& why) {
  ++counts_.failed_fetches;
  HeedLine(pull, node, asked_at);
  if (absl::IsDataLoss(why)) ++counts_.damaged;
  if (pull.sources.Failed(node, why, deps_.clock.Now()) == PullSources::Verdict::kDamaged)
    pull.why = LookupOutcome::kDataLoss;
}

void ObjectPuller::NodeGone(NodeNumber node) {
  std::vector<PullPtr> all;
  for (const auto& [id, pull] : pulls_) all.push_back(pull);
  for (const PullPtr& pull : all) {
    pull->sources.Drop(node);
    if (pull->stage == Stage::kQueued && pull->sources.empty()) {
      Fail(pull, pull->why);
    } else {
      FailIfHopeless(pull);
    }
  }
}

void ObjectPuller::Cancel(ObjectId id) {
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return;
  const PullPtr pull = found->second;
  Fail(pull, LookupOutcome::kNotFound);
}

void ObjectPuller::FailIfHopeless(const PullPtr& pull) {
  const bool searching = pull->stage == Stage::kAsking || pull->stage == Stage::kReceiving;
  if (searching && pull->coming.empty() && pull->sources.empty()) Fail(pull, pull->why);
}

void ObjectPuller::Fail(const PullPtr& pull, LookupOutcome outcome) {
  if (pull->stage >= Stage::kEnding) return;
  pull->why = outcome;
  if (pull->stage == Stage::kWaitingForRoom) deps_.store.AbortReceive(pull->id);
  const bool has_room = pull->stage == Stage::kReceiving;
  pull->stage = Stage::kEnding;
  pull->target->Close();
  pull->first.reset();
  if (!has_room) return Finish(pull);
  EndIfIdle(pull);
}

void ObjectPuller::EndIfIdle(const PullPtr& pull) {
  // Its room is not given up under the hands of a thread that writes there; that one comes by here.
  if (pull->stage != Stage::kEnding || !pull->target->idle()) return;
  deps_.store.AbortReceive(pull->id);
  Finish(pull);
}

void ObjectPuller::Complete(const PullPtr& pull) {
  pull->target->Close();
  const absl::Status sealed = deps_.store.EndReceive(pull->id);
  pull->why = sealed.ok() ? LookupOutcome::kFound : LookupOutcome::kFull;
  Finish(pull);
}

void ObjectPuller::Finish(const PullPtr& pull) {
  pull->stage = Stage::kOver;
  pulls_.erase(pull->id);
  Leave(pull);
  if (pull->instead && pull->why != LookupOutcome::kFound) {
    const FetchWanted wanted = *pull->instead;
    Pull(wanted.id, wanted.hint, wanted.size);
  } else {
    ++(pull->why == LookupOutcome::kFound ? counts_.completed : counts_.failed);
    finished_.push_back(
        {pull->id, pull->why, pull->stalled, pull->is_part() ? pull->of : ObjectId()});
  }
  Admit();
}

std::optional<ObjectPuller::Part> ObjectPuller::FindPart(const proto::BlockRequest& request,
                                                         ObjectId id) {
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) return std::nullopt;
  const PullState& pull = *found->second;
  if (pull.stage != Stage::kReceiving) return std::nullopt;
  if (!request.any_attempt() && request.attempt() != pull.arrival.attempt) return std::nullopt;
  Part part;
  part.head.set_outcome(proto::BlockHead::NOT_YET);
  part.head.set_attempt(pull.arrival.attempt);
  part.head.set_flags(pull.arrival.flags);
  part.head.set_size_bytes(pull.arrival.size_bytes);
  part.head.set_nested_count(pull.arrival.nested_count);
  part.head.set_partial(true);
  part.head.set_chunk_bytes(options_.chunk_bytes);
  std::string bits((pull.chunks.size() + 7) / 8, '\0');
  for (size_t i = 0; i < pull.chunks.size(); ++i) {
    if (pull.chunks[i] == Chunk::kHere) bits[i / 8] |= static_cast<char>(1 << (i % 8));
  }
  part.head.set_chunks(bits);
  const size_t chunk = request.offset() / options_.chunk_bytes;
  if (request.offset() % options_.chunk_bytes == 0 && chunk < pull.chunks.size() &&
      pull.chunks[chunk] == Chunk::kHere && request.length() >= ChunkLength(pull, chunk)) {
    part.head.set_outcome(proto::BlockHead::FOUND);
    part.bytes = {pull.data + request.offset(), ChunkLength(pull, chunk)};
    part.hold = deps_.store.HoldArriving(id);
  }
  return part;
}

void ObjectPuller::Tick() {
  const Nanos now = deps_.clock.Now();
  const std::vector<PullPtr> running = running_;
  for (const PullPtr& pull : running) {
    LeaveSlow(*pull);
    if (now - pull->progress_at >= options_.give_up_after) {
      for (const PullState::Coming& each : pull->coming) HeedLine(*pull, each.node, each.asked_at);
    }
    if (pull->stage == Stage::kEnding) {
      EndIfIdle(pull);
    } else if (pull->stage == Stage::kWaitingForRoom) {
      pull->progress_at = now;  // The store says when that has lasted too long.
    } else if (!pull->target->idle()) {
      pull->progress_at = now;  // The links say when nothing comes any more.
      pull->stage == Stage::kAsking ? Ask(pull) : Pump(pull);
    } else if (now - pull->progress_at >= options_.give_up_after) {
      pull->stalled = !pull->sources.empty();
      Fail(pull, pull->why);
    } else if (pull->stage == Stage::kAsking) {
      Ask(pull);
    } else if (pull->stage == Stage::kReceiving) {
      Pump(pull);
    }
  }
}

Nanos ObjectPuller::NextTick() const {
  Nanos next = kForever;
  const Nanos now = deps_.clock.Now();
  for (const PullPtr& pull : running_) {
    if (pull->stage != Stage::kAsking && pull->stage != Stage::kReceiving) continue;
    next = std::min(next, pull->progress_at + options_.give_up_after);
    next = std::min(next, pull->sources.NextRetry(now));
    next = std::min(next, NextLook(*pull));
  }
  return next;
}

ObjectPuller::Stats ObjectPuller::stats() const {
  Stats stats = counts_;
  stats.active_bytes = active_bytes_;
  stats.queued = queue_.size() + part_queue_.size();
  return stats;
}

}  // namespace sheaf
