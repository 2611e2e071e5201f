// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/population.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace sheaf {
namespace {

// One piece of work: 2-10 ms. Of a job two are under way, so that the memory thread goes on while the
// loop hears of one; what another job wants waits behind two at most.
constexpr uint64_t kChunkBytes = 16 * 1024 * 1024;
constexpr int kUnderWay = 2;
constexpr uint64_t kAheadBytes = 32 * 1024 * 1024;  // Populated, or given back, at a time.
constexpr Nanos kRetryPeriod = kSecond;

}  // namespace

struct Population::Job {
  std::vector<ExtentRange> left;  // The last one is next.
  std::function<void(absl::Status)> done;
  absl::Status outcome;  // Of the chunks that have ended; only the loop has it.
  int under_way = 0;
};

Population::Population(Options options, const Clock& clock, ArenaMemory& arena,
                       ExtentAllocator& allocator, Run run)
    : options_(options),
      clock_(clock),
      arena_(arena),
      allocator_(allocator),
      run_(std::move(run)),
      ahead_bytes_(options.idle_bytes),
      last_demand_(clock.Now()) {}

void Population::Populate(std::vector<ExtentRange> ranges, std::function<void(absl::Status)> done) {
  auto job = std::make_shared<Job>();
  job->left = std::move(ranges);
  job->done = std::move(done);
  NextChunks(job);
}

void Population::NextChunks(const std::shared_ptr<Job>& job) {
  while (job->under_way < kUnderWay && job->outcome.ok() && !job->left.empty()) NextChunk(job);
  if (job->under_way == 0 && job->done) std::exchange(job->done, nullptr)(job->outcome);
}

void Population::NextChunk(const std::shared_ptr<Job>& job) {
  ExtentRange& range = job->left.back();
  const ExtentRange chunk{range.offset, std::min(range.bytes, kChunkBytes)};
  range.offset += chunk.bytes;
  range.bytes -= chunk.bytes;
  if (range.bytes == 0) job->left.pop_back();
  ++job->under_way;
  // Written on the memory thread, read on the loop afterwards.
  auto outcome = std::make_shared<absl::Status>();
  run_([&arena = arena_, outcome, chunk] { *outcome = arena.Populate(chunk.offset, chunk.bytes); },
       [this, job, outcome] {
         --job->under_way;
         if (!outcome->ok()) job->outcome = *outcome;
         NextChunks(job);
       });
}

void Population::OnDemand(uint64_t bytes, bool waited) {
  last_demand_ = clock_.Now();
  if (waited) {
    ahead_bytes_ = std::clamp(std::max(2 * ahead_bytes_, bytes), options_.idle_bytes,
                              std::max(options_.idle_bytes, options_.most_ahead_bytes));
  }
  PopulateAhead();
}

void Population::PopulateAhead() {
  if (populating_ahead_ || giving_back_ || clock_.Now() < retry_at_) return;
  const uint64_t ready = allocator_.populated_free_bytes();
  if (ready >= ahead_bytes_) return;
  const uint64_t missing = AlignUp(ahead_bytes_ - ready, kGranuleBytes);
  const auto range = allocator_.TakeUnpopulated(std::min(missing, kAheadBytes));
  if (!range) return;
  populating_ahead_ = true;
  in_flight_bytes_ += range->bytes;
  Populate({*range}, [this, range = *range](absl::Status outcome) {
    populating_ahead_ = false;
    in_flight_bytes_ -= range.bytes;
    allocator_.Free(range, outcome.ok());
    if (!outcome.ok()) retry_at_ = clock_.Now() + kRetryPeriod;
    if (on_room_) on_room_();
    PopulateAhead();
  });
}

uint64_t Population::GiveBack(uint64_t bytes) {
  if (giving_back_) return 0;
  const auto range =
      allocator_.TakeColdest(std::min(AlignUp(bytes, kGranuleBytes), 4 * kAheadBytes));
  if (!range) return 0;
  giving_back_ = true;
  in_flight_bytes_ += range->bytes;
  run_([&arena = arena_, range = *range] { arena.Discard(range.offset, range.bytes); },
       [this, range = *range] {
         giving_back_ = false;
         in_flight_bytes_ -= range.bytes;
         allocator_.Free(range, /*populated=*/false);
         if (on_room_) on_room_();
       });
  return range->bytes;
}

void Population::Tick() {
  const Nanos now = clock_.Now();
  if (now - last_demand_ >= options_.idle_after) {
    ahead_bytes_ = options_.idle_bytes;
    const uint64_t ready = allocator_.populated_free_bytes();
    if (ready > ahead_bytes_ + kGranuleBytes) GiveBack(ready - ahead_bytes_);
  }
  PopulateAhead();
}

}  // namespace sheaf
