// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The parts of the raylet's side over an arena and a disk in memory, each to be called by itself,
// and processes that are nothing but what they write into the arena. For tests only.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "base/executor.h"
#include "base/fake_clock.h"
#include "object_store/arena/shelf.h"
#include "object_store/server/arrivals.h"
#include "object_store/server/restorer.h"
#include "object_store/server/spill_scheduler.h"

namespace sheaf::store_parts_test {

inline constexpr NodeNumber kNode = 7;
inline constexpr ProcessId kA{kNode, 1};
inline constexpr ProcessId kB{kNode, 2};
inline constexpr uint64_t kG = kGranuleBytes;

inline ObjectId Id(ProcessId owner, uint64_t sequence) {
  return ObjectId::Make(owner, sequence, 1);
}

class MemoryArena final : public ArenaMemory {
 public:
  explicit MemoryArena(uint64_t bytes) : pages_(bytes / kPageBytes) {}
  std::byte* data() override { return pages_[0].bytes; }
  uint64_t size_bytes() const override { return pages_.size() * kPageBytes; }
  absl::Status Populate(uint64_t, uint64_t) override { return next_populate; }
  void Discard(uint64_t, uint64_t) override {}
  absl::Status next_populate;

 private:
  struct alignas(64) Page {
    std::byte bytes[kPageBytes] = {};
  };
  std::vector<Page> pages_;
};

class MemorySpill final : public SpillStorage {
 public:
  absl::StatusOr<std::vector<SpillRecord>> Write(
      uint64_t file, std::span<const std::span<const std::byte>> pieces) override {
    if (full) return absl::ResourceExhaustedError("the disk is full");
    std::vector<SpillRecord> records;
    std::string& bytes = files[file];
    for (const auto& piece : pieces) {
      records.push_back({file, bytes.size(), piece.size(), {}});
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return records;
  }
  absl::Status Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) override {
    const auto file = files.find(record.file);
    if (file == files.end()) return absl::DataLossError("the file is gone");
    std::memcpy(to.data(), file->second.data() + record.offset + from, to.size());
    return absl::OkStatus();
  }
  void Remove(uint64_t file) override { files.erase(file); }

  bool full = false;
  std::map<uint64_t, std::string> files;
};

struct Sent {
  ProcessId to;
  FrameKind kind;
  std::string body;
};

class SentFrames final : public Transport {
 public:
  Channel& To(ProcessId peer) override {
    auto& channel = channels_[peer];
    if (channel == nullptr) channel = std::make_unique<Recorder>(*this, peer);
    return *channel;
  }
  void Forget(ProcessId) override {}
  // What was sent of one kind since it was asked for last.
  template <class Body>
  std::vector<std::pair<ProcessId, Body>> Take(FrameKind kind) {
    std::vector<std::pair<ProcessId, Body>> taken;
    std::erase_if(frames, [&](const Sent& sent) {
      if (sent.kind != kind) return false;
      Body body;
      REQUIRE(sent.body.size() == sizeof(body));
      std::memcpy(&body, sent.body.data(), sizeof(body));
      taken.emplace_back(sent.to, body);
      return true;
    });
    return taken;
  }
  std::vector<Sent> frames;

 private:
  class Recorder final : public Channel {
   public:
    Recorder(SentFrames& all, ProcessId peer) : all_(all), peer_(peer) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      all_.frames.push_back({peer_, kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    SentFrames& all_;
    const ProcessId peer_;
  };
  std::map<ProcessId, std::unique_ptr<Channel>> channels_;
};

class SeenObjects final : public StoreObserver {
 public:
  void OnObjectSealed(const StoreObjectInfo& object) override { sealed.push_back(object.id); }
  void OnObjectGone(const StoreObjectInfo& object, bool was_lost) override {
    (was_lost ? lost : gone).push_back(object.id);
  }
  void OnStoreViolation(ProcessId process, const std::string&) override {
    violations.push_back(process);
  }
  std::vector<ObjectId> sealed, gone, lost;
  std::vector<ProcessId> violations;
};

class Parts final : public RoomSource {
 public:
  explicit Parts(uint64_t capacity_bytes = 4 << 20)
      : shape(ArenaShape::For(capacity_bytes)), arena(shape.arena_bytes) {
    // Memory is no question but where a test makes it one.
    allocator.Free(allocator.Allocate({.bytes = capacity()})->range, /*populated=*/true);
    for (const ProcessId process : {kA, kB}) Attach(process);
  }

  uint64_t capacity() const { return shape.arena_bytes - shape.data_offset; }
  HazardList& HazardsOf(ProcessId process) {
    return *reinterpret_cast<HazardList*>(segments.at(process)->data() + kHazardOffset);
  }
  void View(ProcessId process, const ObjectRecord& record) {
    HazardList& list = HazardsOf(process);
    list.used.store(1);
    list.entries[0].store(EncodeHazard(record.slot, record.generation));
  }
  void EndView(ProcessId process) { HazardsOf(process).entries[0].store(0); }

  // An extent of `bytes` for `process`: for small objects, or for the one in `slot`.
  Extent* Grant(ProcessId process, uint64_t bytes, uint32_t slot = kNoSlot) {
    const auto taken = allocator.Allocate({.bytes = AlignUp(bytes, kG)});
    REQUIRE(taken);
    return table.AddExtent(taken->range, process, slot);
  }
  uint32_t GrantSlot(ProcessId process) {
    const auto grant = table.GrantPages(process, 1);
    REQUIRE(grant);
    return grant->first_page * kSlotsPerPage;
  }
  // What a process does to seal an object of `bytes` at `offset`; nobody has heard of it yet.
  void WriteSealed(uint32_t slot, ObjectId id, uint64_t offset, uint64_t bytes,
                   uint32_t attempt = 0) {
    Slot& shared = table.at(slot);
    shared.id = id;
    shared.data_offset = offset;
    shared.data_bytes = bytes;
    shared.attempt = attempt;
    shared.nested_count = 0;
    std::memset(arena.data() + offset, static_cast<int>(id.sequence() & 0x7f), bytes);
    table.SetState(slot, SlotState::kSealed);
  }
  // A sealed object with an extent of its own.
  std::shared_ptr<ObjectRecord> Seal(ProcessId process, ObjectId id, uint64_t bytes = kG) {
    const uint32_t slot = GrantSlot(process);
    WriteSealed(slot, id, Grant(process, bytes, slot)->range.offset, bytes);
    index.Learn(slot);
    REQUIRE(table.Find(id) != nullptr);
    return table.Find(id);
  }
  // The same on disk.
  std::shared_ptr<ObjectRecord> SealOnDisk(ProcessId process, ObjectId id, uint64_t bytes = kG) {
    const std::shared_ptr<ObjectRecord> record = Seal(process, id, bytes);
    spills.Spill(bytes);
    disk.RunAll();
    REQUIRE(record->place == ObjectPlace::kDisk);
    return record;
  }
  // All of the store, so that nothing is free.
  Extent* Fill() { return Grant(kB, allocator.LongestRun(false)); }

  // RoomSource.
  void TakeUnused(uint64_t, bool) override { ++asked_for_unused; }
  void BeginToMakeRoom(uint64_t bytes) override { asked_for_bytes = bytes; }
  bool making_room() const override { return room_comes; }

  const ArenaShape shape;
  FakeClock clock;
  SentFrames transport;
  SeenObjects observer;
  MemoryArena arena;
  MemorySpill spill;
  InlineExecutor inline_loop;
  ManualExecutor memory;
  ManualExecutor disk;
  std::map<ProcessId, std::shared_ptr<Mapping>> segments;
  int asked_for_unused = 0;
  uint64_t asked_for_bytes = 0;
  bool room_comes = false;

  StoreLoop loop{inline_loop};
  StoreProcesses processes;
  ObjectTable table{arena.data(), shape, kNode};
  ExtentAllocator allocator{shape.data_offset, shape.arena_bytes - shape.data_offset};
  ExtentLedger extents{table, allocator};
  Shelf shelf{clock, table, allocator, extents};
  SpillFiles files{loop, disk, spill};
  HazardScan hazards{processes, table};
  FreedObjects freed{20 * kMillisecond, {clock, table, hazards, shelf, files}};
  Refusals refusals{capacity(), {transport, observer, allocator, hazards}};
  Recalls recalls{2 * kSecond, {transport, table, allocator, extents}};
  Population population{{.idle_bytes = 0, .most_ahead_bytes = 0, .idle_after = kSecond},
                        clock,
                        arena,
                        allocator,
                        [this](std::function<void()> work, std::function<void()> done) {
                          loop.RunElsewhere(memory, std::move(work), std::move(done));
                        }};
  SlotQueue slots{60 * kSecond, {clock, transport, table, recalls, refusals}};
  RoomQueue room{false, {clock, allocator, population, slots, *this}};
  ObjectIndex index{
      {.node = kNode, .learn_period = 5 * kMillisecond},
      {clock, transport, observer, arena, processes, table, freed, files, room, refusals}};
  SpillScheduler spills{
      {.file_bytes = 4 * kG,
       .rescan_period = 20 * kMillisecond,
       .disk_retry_period = kSecond,
       .waits_for_slow_disk = 10},
      {clock, arena, spill, disk, loop, table, hazards, freed, files, room, index}};
  Restorer restorer{10 * kSecond,
                    {clock, arena, spill, disk, loop, table, shelf, slots, room, index}};
  Arrivals arrivals{{.node = kNode, .capacity_bytes = capacity()},
                    {clock, observer, arena, loop, table, shelf, slots, room, freed, index}};

 private:
  void Attach(ProcessId process) {
    const auto fd = MakeSegment("test-process", kProcessSegmentBytes);
    REQUIRE(fd.ok());
    auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
    REQUIRE(mapping.ok());
    segments[process] = std::make_shared<Mapping>(*std::move(mapping));
    processes.Add(process, segments[process]);
  }
};

}  // namespace sheaf::store_parts_test
