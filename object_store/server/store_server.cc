// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/store_server.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/frame.h"

namespace sheaf {
namespace {

constexpr RangeReader::Options kRanges{.most_bytes = uint64_t{64} << 20,
                                       .most_waiting_bytes = uint64_t{256} << 20,
                                       .patience = 10 * kSecond};

}  // namespace

StoreServer::StoreServer(StoreOptions options, Deps deps, uint64_t capacity_bytes)
    : options_(options),
      deps_(deps),
      shape_(ArenaShape::For(capacity_bytes)),
      loop_(deps.loop),
      table_(deps.arena.data(), shape_, options.node),
      allocator_(shape_.data_offset, shape_.arena_bytes - shape_.data_offset),
      extents_(table_, allocator_),
      shelf_(deps.clock, table_, allocator_, extents_),
      files_(loop_, deps.disk, deps.spill),
      hazards_(processes_, table_),
      freed_(options.rescan_period, {deps.clock, table_, hazards_, shelf_, files_}),
      refusals_(this->capacity_bytes(), {deps.transport, deps.observer, allocator_, hazards_}),
      recalls_(options.take_back_after, {deps.transport, table_, allocator_, extents_}),
      population_({.idle_bytes = options.idle_populated_bytes,
                   .most_ahead_bytes = this->capacity_bytes() / 8,
                   .idle_after = options.idle_after},
                  deps.clock, deps.arena, allocator_,
                  [this](std::function<void()> work, std::function<void()> done) {
                    loop_.RunElsewhere(deps_.memory, std::move(work), std::move(done));
                  }),
      slots_(options.longest_wait, {deps.clock, deps.transport, table_, recalls_, refusals_}),
      room_(options.align_to_huge_pages, {deps.clock, allocator_, population_, slots_, *this}),
      index_({.node = options.node, .learn_period = options.learn_period},
             {deps.clock, deps.transport, deps.observer, deps.arena, processes_, table_, freed_,
              files_, room_, refusals_}),
      spills_({.file_bytes = options.spill_file_bytes,
               .rescan_period = options.rescan_period,
               .disk_retry_period = options.disk_retry_period,
               .waits_for_slow_disk = options.waits_for_slow_disk},
              {deps.clock, deps.arena, deps.spill, deps.disk, loop_, table_, hazards_, freed_,
               files_, room_, index_}),
      restorer_(options.restore_wait, {deps.clock, deps.arena, deps.spill, deps.disk, loop_, table_,
                                       shelf_, slots_, room_, index_}),
      ranges_(kRanges, {deps.clock, deps.spill, deps.disk, loop_, files_, index_}),
      arrivals_({.node = options.node, .capacity_bytes = this->capacity_bytes()},
                {deps.clock, deps.observer, deps.arena, loop_, table_, shelf_, slots_, room_,
                 freed_, index_}) {
  SHEAF_CHECK(deps.arena.size_bytes() == shape_.arena_bytes, "the arena has the size of its shape");
  population_.set_on_room([this] { room_.Serve(); });
  population_.Tick();
}

StoreServer::~StoreServer() { loop_.Close(); }

void StoreServer::OnProcessAttached(ProcessId process, std::shared_ptr<Mapping> segment) {
  processes_.Add(process, std::move(segment));
}

void StoreServer::OnProcessDied(ProcessId process) {
  if (!processes_.MarkDead(process)) return;
  index_.LearnOf(process);  // What it sealed and did not announce: the slots are its journal.
  room_.OnProcessDied(process);
  slots_.OnProcessDied(process);
  recalls_.OnProcessDied(process);
  extents_.Split(process, nullptr);
  table_.EndPageGrants(process);
  ScanFreed();
  room_.Serve();
}

void StoreServer::OnViewsGone(ProcessId process) {
  if (!processes_.Has(process)) return;
  OnProcessDied(process);
  processes_.Remove(process);
  ScanFreed();
  room_.Serve();
}

void StoreServer::OnFrame(ProcessId from, FrameKind kind, std::string_view body) {
  if (!processes_.IsAlive(from)) return;
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
    if (const auto* request = FrameHead<SlotRequest>(copy)) return slots_.OnRequest(from, *request);
  } else if (kind == kStoreExtentReturn) {
    return OnExtentReturn(from, FrameItems<ExtentRange>(copy));
  } else if (kind == kStoreSlotReturn) {
    return OnSlotReturn(from, FrameItems<SlotPages>(copy));
  } else if (kind == kStoreSealed) {
    for (const SealedSlot& sealed : FrameItems<SealedSlot>(copy)) index_.Learn(sealed.slot);
    return;
  } else if (kind == kStoreFree) {
    return index_.OnFree(from, FrameItems<ObjectName>(copy));
  } else if (kind == kStoreLookup) {
    return OnLookup(from, FrameItems<ObjectId>(copy));
  }
  refusals_.Violation(from, "a frame of the object store that cannot be read");
}

void StoreServer::EndTurn() {
  index_.EndTurn();
  if (!freed_.look_again()) return;
  ScanFreed();
  room_.Serve();
}

Nanos StoreServer::Tick() {
  const Nanos now = deps_.clock.Now();
  index_.EndTurn();
  if (freed_.Due(now)) ScanFreed();
  recalls_.Tick(now);
  population_.Tick();
  room_.Expire(now, spills_.Progress(now));
  room_.Serve();
  const bool busy = !freed_.empty() || !room_.empty() || !slots_.empty();
  return now + (busy ? options_.rescan_period : 100 * kMillisecond);
}

absl::StatusOr<ObjectLocation> StoreServer::Locate(ObjectId id) const {
  const std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record == nullptr) return absl::NotFoundError("no such object on this node");
  if (record->place != ObjectPlace::kMemory) return absl::UnavailableError("on disk");
  return index_.LocationOf(*record);
}

absl::StatusOr<StoreObjectInfo> StoreServer::Describe(ObjectId id) const {
  const std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record == nullptr) return absl::NotFoundError("no such object on this node");
  return record->info;
}

std::vector<ObjectId> StoreServer::ObjectsOf(ProcessId owner) const {
  std::vector<ObjectId> ids;
  const auto& objects = table_.objects();  // Ordered by maker first.
  for (auto it = objects.lower_bound(ObjectId{owner.packed(), 0});
       it != objects.end() && it->first.maker() == owner; ++it) {
    ids.push_back(it->first);
  }
  return ids;
}

void StoreServer::ForEach(const std::function<void(const StoreObjectInfo&)>& visit) const {
  for (const auto& [id, record] : table_.objects()) visit(record->info);
}

void StoreServer::Free(ObjectId id) {
  if (const std::shared_ptr<ObjectRecord> record = table_.Find(id)) index_.Free(record);
}

std::vector<ObjectId> StoreServer::Adopt(ProcessId owner,
                                         const std::function<bool(ObjectId)>& still_referenced) {
  index_.LearnAllNow();
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

StoreStats StoreServer::Stats() const {
  StoreStats stats;
  stats.capacity_bytes = capacity_bytes();
  const uint64_t free = allocator_.free_bytes() + population_.in_flight_bytes();
  stats.used_bytes = stats.capacity_bytes - free;
  stats.object_bytes = table_.memory_payload_bytes();
  stats.pinned_bytes = hazards_.pinned_bytes();
  stats.spilled_bytes = table_.disk_payload_bytes();
  stats.populated_bytes = stats.used_bytes + allocator_.populated_free_bytes();
  stats.objects = table_.objects().size();
  stats.granted_bytes = table_.granted_bytes();
  stats.waiting_requests = room_.size() + slots_.size();
  stats.spills = spills_.counts().spills;
  stats.restores = restorer_.counts().restores;
  stats.spill_written_bytes = spills_.counts().written_bytes;
  stats.restored_bytes = restorer_.counts().restored_bytes;
  stats.range_reads = ranges_.counts().reads;
  stats.range_bytes = ranges_.counts().bytes;
  stats.disk_failures = spills_.counts().failures + restorer_.counts().lost + ranges_.counts().lost;
  stats.refusals = refusals_.refusals() + arrivals_.counts().refusals;
  stats.lost = restorer_.counts().lost + ranges_.counts().lost;
  stats.violations = refusals_.violations();
  stats.copies = arrivals_.counts().copies;
  stats.copied_bytes = arrivals_.counts().copied_bytes;
  return stats;
}

void StoreServer::Locate(ProcessId asker, ObjectId id, const ObjectLocation& hint) {
  std::vector<LocatedObject> answers;
  const std::shared_ptr<ObjectRecord> record = index_.Find(id, hint);
  if (index_.Answer(asker, id, record, &answers)) restorer_.Start(record);
  for (const LocatedObject& answer : answers)
    deps_.transport.To(asker).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
}

void StoreServer::OnRemoteFree(ProcessId from, std::span<const ObjectName> names) {
  std::vector<ObjectName> own;
  for (const ObjectName& name : names) {
    if (name.id.maker() == from) own.push_back(name);
  }
  index_.OnFree(from, own);
}

StoreServer::Pinned StoreServer::PinNow(const std::shared_ptr<ObjectRecord>& record) {
  table_.Touch(*record);
  ++record->pins;
  const StoreObjectInfo& info = record->info;
  const uint64_t bytes =
      info.nested.empty() ? info.size_bytes
                          : NestedOffset(info.size_bytes) + info.nested.size() * sizeof(ObjectId);
  return {
      .info = info,
      .bytes = {reinterpret_cast<const char*>(deps_.arena.data()) + record->bytes.offset, bytes},
      .hold = loop_.Hold([this, record] {
        if (--record->pins == 0) freed_.LookAgain();
      })};
}

void StoreServer::Pin(ObjectId id, const ObjectLocation& hint,
                      std::function<void(absl::StatusOr<Pinned>)> done) {
  const std::shared_ptr<ObjectRecord> record = index_.Find(id, hint);
  if (record == nullptr) return done(absl::NotFoundError("no such object on this node"));
  if (record->place == ObjectPlace::kMemory) return done(PinNow(record));
  record->hooks.push_back([this, record, done = std::move(done)](LookupOutcome outcome) {
    switch (outcome) {
      case LookupOutcome::kFound:
        return done(PinNow(record));
      case LookupOutcome::kDataLoss:
        return done(absl::DataLossError("its spilled copy is damaged or gone"));
      case LookupOutcome::kFull:
        return done(absl::ResourceExhaustedError("no room to restore it on its node"));
      case LookupOutcome::kNotFound:
      case LookupOutcome::kComing:      // No outcome.
      case LookupOutcome::kOutOfRange:  // Of parts alone.
        return done(absl::NotFoundError("it was freed"));
    }
  });
  if (record->place == ObjectPlace::kDisk) restorer_.Start(record);
}

void StoreServer::PinRange(ObjectId id, const ObjectLocation& hint, std::optional<uint32_t> attempt,
                           uint64_t from, uint64_t bytes,
                           std::function<void(absl::StatusOr<Pinned>)> done) {
  const std::shared_ptr<ObjectRecord> record = index_.Find(id, hint);
  if (record == nullptr) return done(absl::NotFoundError("no such object on this node"));
  if (attempt && record->info.attempt != *attempt)
    return done(absl::NotFoundError("another attempt of it is here"));
  const uint64_t size = record->info.size_bytes;
  if (from > size || bytes > size - from) {
    return done(absl::OutOfRangeError(absl::StrCat("it has ", size, " bytes")));
  }
  if (record->place == ObjectPlace::kMemory) {
    Pinned pinned = PinNow(record);
    pinned.bytes = pinned.bytes.subspan(from, bytes);
    return done(std::move(pinned));
  }
  ranges_.Read(
      record, from, bytes,
      [info = record->info, done = std::move(done)](absl::StatusOr<RangeReader::Range> range) {
        if (!range.ok()) return done(range.status());
        done(Pinned{.info = info, .bytes = range->bytes, .hold = std::move(range->hold)});
      });
}

void StoreServer::TakeUnused(uint64_t bytes, bool populated) {
  if (freed_.look_again()) ScanFreed();
  recalls_.TakeIdle(bytes, populated);
}

void StoreServer::BeginToMakeRoom(uint64_t bytes) {
  const Nanos now = deps_.clock.Now();
  recalls_.AskForEmpty(now);
  recalls_.AskForShared(now);
  spills_.Spill(bytes);
}

}  // namespace sheaf
