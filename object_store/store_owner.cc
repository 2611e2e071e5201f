// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/store_owner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace sheaf {

StoreOwner::StoreOwner(StoreOptions options, World world, uint64_t capacity_bytes)
    : options_(options),
      world_(world),
      shape_(ArenaShape::For(capacity_bytes)),
      table_(world.arena.data(), shape_, options.node),
      allocator_(shape_.data_offset, shape_.arena_bytes - shape_.data_offset),
      population_({.idle_bytes = options.idle_populated_bytes,
                   .most_ahead_bytes = (shape_.arena_bytes - shape_.data_offset) / 8,
                   .idle_after = options.idle_after},
                  world.clock, world.arena, allocator_,
                  [this](std::function<void()> work, std::function<void()> done) {
                    RunElsewhere(world_.memory, std::move(work), std::move(done));
                  }),
      disk_(options.disk_retry_period, options.waits_for_slow_disk) {
  SHEAF_CHECK(world.arena.size_bytes() == shape_.arena_bytes,
              "the arena has the size of its shape");
  gate_ = std::make_shared<LoopGate>(world_.loop);
  population_.set_on_room([this] { ServeWaiting(); });
  population_.Tick();
}

StoreOwner::~StoreOwner() { gate_->Close(); }

void StoreOwner::RunElsewhere(Executor& where, std::function<void()> work,
                              std::function<void()> done) {
  where.Post([&loop = world_.loop, alive = std::weak_ptr<bool>(alive_), work = std::move(work),
              done = std::move(done)]() mutable {
    work();
    // `alive` ends on the loop's thread, so it is asked there.
    loop.Post([alive = std::move(alive), done = std::move(done)] {
      if (!alive.expired()) done();
    });
  });
}

void StoreOwner::OnProcessAttached(ProcessId process, std::shared_ptr<Mapping> segment) {
  SHEAF_CHECK(segment != nullptr && segment->size() >= kProcessSegmentBytes,
              "the segment of a process holds its hazard list");
  processes_[process] = {
      .segment = std::move(segment), .alive = true, .slot_pages = 0, .recalled_at = 0};
}

void StoreOwner::OnProcessDied(ProcessId process) {
  const auto dead = processes_.find(process);
  if (dead == processes_.end() || !dead->second.alive) return;
  dead->second.alive = false;
  // What it sealed and did not announce: the slots are its journal.
  std::vector<uint32_t> sealed;
  table_.ForEachUnknown(process, [&](uint32_t slot) {
    if (table_.Word(slot).state == SlotState::kSealed) sealed.push_back(slot);
  });
  for (const uint32_t slot : sealed) LearnSealed(slot);
  for (const auto& waiting : waiting_) {
    if (waiting->process == process) waiting->gone = true;
  }
  std::erase_if(waiting_, [](const auto& w) { return w->gone && !w->populating; });
  std::erase_if(waiting_for_slots_, [&](const auto& w) { return w.process == process; });
  SplitExtents(process, nullptr);
  table_.EndPageLeases(process);
  ScanFreeing();
  ServeWaiting();
}

void StoreOwner::OnViewsGone(ProcessId process) {
  const auto gone = processes_.find(process);
  if (gone == processes_.end()) return;
  OnProcessDied(process);
  processes_.erase(process);
  ScanFreeing();
  ServeWaiting();
}

void StoreOwner::OnFrame(ProcessId from, FrameKind kind, std::string_view body) {
  const auto sender = processes_.find(from);
  if (sender == processes_.end() || !sender->second.alive) return;
  scratch_.resize(body.size());
  if (!body.empty()) std::memcpy(scratch_.data(), body.data(), body.size());
  const std::string_view copy(reinterpret_cast<const char*>(scratch_.data()), scratch_.size());
  if (kind == kStoreExtentRequest) {
    if (const auto* request = FrameHead<ExtentRequest>(copy))
      return OnExtentRequest(from, *request);
  } else if (kind == kStoreExtentCancel) {
    if (const auto* cancel = FrameHead<ExtentCancel>(copy))
      return OnExtentCancel(from, cancel->request);
  } else if (kind == kStoreSlotRequest) {
    if (const auto* request = FrameHead<SlotRequest>(copy)) return OnSlotRequest(from, *request);
  } else if (kind == kStoreExtentReturn) {
    const std::vector<ExtentRange> ranges(FrameItems<ExtentRange>(copy).begin(),
                                          FrameItems<ExtentRange>(copy).end());
    OnExtentReturn(from, ranges);
    return ServeWaiting();
  } else if (kind == kStoreSlotReturn) {
    OnSlotReturn(from, FrameItems<SlotPages>(copy));
    return ServeWaiting();
  } else if (kind == kStoreSealed) {
    return OnSealed(FrameItems<SealedSlot>(copy));
  } else if (kind == kStoreFree) {
    return OnFree(from, FrameItems<ObjectName>(copy));
  } else if (kind == kStoreLookup) {
    return OnLookup(from, FrameItems<ObjectId>(copy));
  }
  Violation(from, "a frame of the object store that cannot be read");
}

void StoreOwner::EndTurn() {
  learned_ = false;
  if (!new_frees_) return;
  ScanFreeing();
  ServeWaiting();
}

Nanos StoreOwner::Tick() {
  const Nanos now = world_.clock.Now();
  learned_ = false;
  if (new_frees_ || (!freeing_.empty() && now >= next_rescan_)) ScanFreeing();
  if (now >= next_take_back_) {
    next_take_back_ = now + options_.take_back_after / 2;
    TakeBackIdle(now - options_.take_back_after, UINT64_MAX);
    Recall(now, now - options_.take_back_after);
  }
  population_.Tick();
  ExpireWaiting(now);
  ServeWaiting();
  const bool busy = !freeing_.empty() || !waiting_.empty() || !waiting_for_slots_.empty();
  return now + (busy ? options_.rescan_period : 100 * kMillisecond);
}

absl::StatusOr<ObjectLocation> StoreOwner::Locate(ObjectId id) const {
  const std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record == nullptr) return absl::NotFoundError("no such object on this node");
  if (record->place != ObjectPlace::kMemory) return absl::UnavailableError("on disk");
  return LocationOf(*record);
}

absl::StatusOr<StoreObjectInfo> StoreOwner::Describe(ObjectId id) const {
  const std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record == nullptr) return absl::NotFoundError("no such object on this node");
  return record->info;
}

std::vector<ObjectId> StoreOwner::ObjectsOf(ProcessId owner) const {
  std::vector<ObjectId> ids;
  const auto& objects = table_.objects();  // Ordered by maker first.
  for (auto it = objects.lower_bound(ObjectId{owner.packed(), 0});
       it != objects.end() && it->first.maker() == owner; ++it) {
    ids.push_back(it->first);
  }
  return ids;
}

void StoreOwner::ForEach(const std::function<void(const StoreObjectInfo&)>& visit) const {
  for (const auto& [id, record] : table_.objects()) visit(record->info);
}

void StoreOwner::Free(ObjectId id) {
  const std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record != nullptr) BeginFree(record);
}

std::vector<ObjectId> StoreOwner::Adopt(ProcessId owner,
                                        const std::function<bool(ObjectId)>& still_referenced) {
  learned_ = false;
  next_learn_ = 0;
  LearnUnannounced();
  std::vector<ObjectId> adopted;
  for (const ObjectId id : ObjectsOf(owner)) {
    if (still_referenced(id)) {
      adopted.push_back(id);
    } else {
      Free(id);
    }
  }
  return adopted;
}

StoreStats StoreOwner::Stats() const {
  StoreStats stats = counts_;
  stats.capacity_bytes = shape_.arena_bytes - shape_.data_offset;
  const uint64_t free = allocator_.free_bytes() + population_.in_flight_bytes();
  stats.used_bytes = stats.capacity_bytes - free;
  stats.populated_bytes = stats.used_bytes + allocator_.populated_free_bytes();
  stats.pinned_bytes = pinned_bytes_;
  stats.leased_bytes = table_.leased_bytes();
  stats.waiting_requests = waiting_.size() + waiting_for_slots_.size();
  stats.objects = table_.objects().size();
  stats.object_bytes = table_.memory_payload_bytes();
  stats.spilled_bytes = table_.disk_payload_bytes();
  return stats;
}

Nanos StoreOwner::ShortSince() const {
  Nanos since = kForever;
  for (const auto& waiting : waiting_) {
    if (!waiting->populating) since = std::min(since, waiting->since);
  }
  return since;
}

ObjectLocation StoreOwner::LocationOf(const ObjectRecord& record) const {
  return {options_.node, record.slot, record.generation, record.info.attempt};
}

void StoreOwner::Violation(ProcessId process, const std::string& what) {
  ++counts_.violations;
  world_.observer.OnStoreViolation(process, what);
}

}  // namespace sheaf
