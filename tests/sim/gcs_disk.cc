// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gcs_disk.h"

#include <algorithm>
#include <utility>

#include "proto/gcs.pb.h"

namespace sheaf::sim {
namespace {

bool IsDeath(const Write& write) {
  proto::NodeInfo info;
  return write.table == Table::kNodes && write.value && info.ParseFromString(*write.value) &&
         info.state() == proto::NodeInfo::DEAD;
}

}  // namespace

void GcsDisk::CommitOne(WriteBatch batch, Done done, bool vital) {
  if (on_commit) at_(world_.now() + kMicrosecond, std::exchange(on_commit, nullptr));
  pending_.push_back({std::move(batch), std::move(done), false, vital});
  if (world_.Planted(Plant::kEarlyAck, 4)) {
    // Acknowledged from memory; kept much later, if at all.
    pending_.back().acknowledged = true;
    at_(world_.now() + kMicrosecond, [alive = alive_, done = std::move(pending_.back().done)] {
      if (*alive) done(absl::OkStatus());
    });
    last_ = std::max(last_, world_.now()) + kSecond;
  }
  const Nanos took = world_.random.OneIn(20) ? world_.Between(kMillisecond, 50 * kMillisecond)
                                             : world_.Between(20 * kMicrosecond, kMillisecond);
  last_ = std::max(last_, world_.now() + took);
  at_(last_, [this, alive = alive_] {
    if (*alive) FinishOne();
  });
}

absl::Status GcsDisk::LoadAll(const Visitor& visit) {
  for (const auto& [key, value] : rows_) visit(key.first, key.second, value);
  return absl::OkStatus();
}

void GcsDisk::Crash() {
  uint64_t kept = pending_.empty() ? 0 : world_.random.Below(pending_.size() + 1);
  if (world_.plant == Plant::kEarlyAck) kept = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (i < kept && (pending_[i].vital || !read_only())) {
      Write(pending_[i].batch);
    } else {
      world_.Count(Fault::kGcsLostWrites);
    }
  }
  pending_.clear();
}

void GcsDisk::Write(WriteBatch& batch) {
  for (sheaf::Write& write : batch) {
    if (world_.plant == Plant::kLostDeath && IsDeath(write)) {
      ++world_.planted;
      continue;
    }
    auto key = std::make_pair(write.table, std::move(write.key));
    if (write.value) {
      rows_[std::move(key)] = *std::move(write.value);
    } else {
      rows_.erase(key);
    }
  }
}

void GcsDisk::FinishOne() {
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  if (read_only() && !first.vital && !first.acknowledged)
    return first.done(absl::ResourceExhaustedError("the disk of the GCS is full"));
  Write(first.batch);
  if (!first.acknowledged) first.done(absl::OkStatus());
  if (on_durable) std::exchange(on_durable, nullptr)();
}

}  // namespace sheaf::sim
