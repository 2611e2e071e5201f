// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/room_queue.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

constexpr uint64_t kOvertakingPart = 8;  // Requests so much smaller than a stuck one overtake it.
constexpr Nanos kPatience = 100 * kMillisecond;  // With one that nothing comes free for.
constexpr Nanos kMemoryRetryPeriod = 500 * kMillisecond;

}  // namespace

void RoomQueue::Add(std::shared_ptr<RoomRequest> request) {
  waiting_.push_back(std::move(request));
  Serve();
}

void RoomQueue::Cancel(const std::shared_ptr<RoomRequest>& request) {
  if (request == nullptr) return;
  request->cancelled = true;
  if (!request->populating) std::erase(waiting_, request);
}

std::shared_ptr<RoomRequest> RoomQueue::Find(ProcessId process, uint64_t number) const {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& request) {
    return !request->cancelled && request->process == process && request->number == number;
  });
  return found == waiting_.end() ? nullptr : *found;
}

void RoomQueue::OnProcessDied(ProcessId process) {
  std::erase_if(waiting_, [&](const auto& request) {
    if (request->process == process) request->cancelled = true;
    return request->cancelled && !request->populating;
  });
}

void RoomQueue::Serve() {
  if (serving_) {
    serve_again_ = true;
    return;
  }
  serving_ = true;
  deps_.slots.Serve();
  do {
    serve_again_ = false;
    uint64_t stuck_bytes = 0;  // Of the smallest request that nothing could be found for.
    for (size_t i = 0; i < waiting_.size();) {
      const std::shared_ptr<RoomRequest> request = waiting_[i];
      if (request->populating ||
          (stuck_bytes != 0 && request->bytes > stuck_bytes / kOvertakingPart)) {
        ++i;
      } else if (TryServe(request)) {
        if (!request->populating) std::erase(waiting_, request);
      } else if (!HoldsOthers(*request)) {
        ++i;
      } else {
        stuck_bytes = stuck_bytes == 0 ? request->bytes : std::min(stuck_bytes, request->bytes);
        ++i;
      }
    }
  } while (serve_again_);
  serving_ = false;
}

bool RoomQueue::HoldsOthers(RoomRequest& request) const {
  const Nanos now = deps_.clock.Now();
  if (deps_.source.making_room()) {
    request.in_vain_since = 0;
  } else if (request.in_vain_since == 0) {
    request.in_vain_since = now;
  }
  return request.in_vain_since == 0 || now - request.in_vain_since < kPatience;
}

bool RoomQueue::TryServe(const std::shared_ptr<RoomRequest>& request) {
  if (request->elsewhere != nullptr && request->elsewhere()) return true;
  ExtentAllocator::Want want{.bytes = request->bytes,
                             .populated_only = short_of_memory(),
                             .from_top = request->from_top,
                             .alignment = align_to_huge_pages_ && request->bytes >= kHugePageBytes
                                              ? kHugePageBytes
                                              : kGranuleBytes};
  auto taken = deps_.allocator.Allocate(want);
  if (!taken) {
    MakeRoom(request->bytes);
    taken = deps_.allocator.Allocate(want);
  }
  const uint64_t least = request->least_bytes;
  if (!taken && least != 0 && least < want.bytes && !deps_.source.making_room()) {
    want.bytes = least;
    want.alignment = kGranuleBytes;
    taken = deps_.allocator.Allocate(want);
  }
  if (!taken) return false;
  if (taken->unpopulated.empty()) {
    request->granted(taken->range);
    deps_.population.OnDemand(request->bytes, /*waited=*/false);
    return true;
  }
  request->populating = true;
  deps_.population.Populate(taken->unpopulated,
                            [this, request, taken = *taken](absl::Status outcome) {
                              OnPopulated(request, taken, outcome);
                            });
  return true;
}

void RoomQueue::OnPopulated(const std::shared_ptr<RoomRequest>& request,
                            const ExtentAllocator::Taken& taken, const absl::Status& outcome) {
  request->populating = false;
  if (outcome.ok() && !request->cancelled) {
    std::erase(waiting_, request);
    request->granted(taken.range);
    deps_.population.OnDemand(request->bytes, /*waited=*/true);
    return Serve();
  }
  if (request->cancelled) std::erase(waiting_, request);
  uint64_t at = taken.range.offset;
  for (const ExtentRange& part : taken.unpopulated) {
    if (part.offset > at) deps_.allocator.Free({at, part.offset - at}, /*populated=*/true);
    deps_.allocator.Free(part, outcome.ok());
    at = part.offset + part.bytes;
  }
  const uint64_t end = taken.range.offset + taken.range.bytes;
  if (end > at) deps_.allocator.Free({at, end - at}, /*populated=*/true);
  if (!outcome.ok()) {
    // From now on for a while only what has memory already, made free by spilling if need be.
    memory_short_until_ = deps_.clock.Now() + kMemoryRetryPeriod;
  }
  Serve();
}

void RoomQueue::MakeRoom(uint64_t bytes) {
  const bool memory_is_short = short_of_memory();
  deps_.source.TakeUnused(bytes, memory_is_short);
  if (deps_.allocator.LongestRun(memory_is_short) >= bytes) return;
  if (memory_is_short && deps_.allocator.LongestRun(false) >= bytes) {
    // Room, but no memory for it: what is populated elsewhere in pieces is given up for it.
    if (deps_.population.GiveBack(bytes) > 0) {
      memory_short_until_ = 0;
      return;
    }
  }
  deps_.source.BeginToMakeRoom(bytes);
}

void RoomQueue::Expire(Nanos now, const SpillProgress& disk) {
  std::vector<std::shared_ptr<RoomRequest>> expired;
  for (const auto& request : waiting_) {
    if (!request->populating && now >= disk.EndOfWait(request->since, request->deadline))
      expired.push_back(request);
  }
  if (expired.empty()) return;
  Serve();  // A last attempt.
  for (const auto& request : expired) {
    if (request->populating || std::erase(waiting_, request) == 0) continue;
    request->refused(disk.failing() ? StoreRefusalReason::kOutOfDisk : StoreRefusalReason::kFull);
  }
}

Nanos RoomQueue::ShortSince() const {
  Nanos since = kForever;
  for (const auto& request : waiting_) {
    if (!request->populating) since = std::min(since, request->since);
  }
  return since;
}

}  // namespace sheaf
