// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/pull_sources.h"

#include <algorithm>
#include <tuple>

namespace sheaf {
namespace {

constexpr uint64_t kLeastTimed = 1 << 20;

}  // namespace

bool PullSource::MayHave(size_t chunk) const {
  if (!partial || chunks.empty()) return true;
  return chunk / 8 < chunks.size() &&
         (static_cast<uint8_t>(chunks[chunk / 8]) >> (chunk % 8) & 1) != 0;
}

void PullSources::Add(NodeNumber node, bool partial) {
  if (node == 0 || node == options_.node || sources_.size() >= kMost) return;
  if (Find(node) != nullptr) return;
  PullSource& source = sources_.emplace_back();
  source.node = node;
  source.partial = partial;
}

void PullSources::AddSelf() {
  if (Find(options_.node) == nullptr) sources_.emplace_back().node = options_.node;
}

PullSource* PullSources::Find(NodeNumber node) {
  for (PullSource& source : sources_) {
    if (source.node == node) return &source;
  }
  return nullptr;
}

void PullSources::Drop(NodeNumber node) {
  std::erase_if(sources_, [&](const PullSource& source) { return source.node == node; });
}

uint64_t PullSources::SpeedOf(uint64_t bytes, Nanos time) {
  const double seconds = static_cast<double>(std::max<Nanos>(time, 1)) / kSecond;
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(bytes) / seconds));
}

void PullSources::Came(NodeNumber node, uint64_t bytes, Nanos time) {
  if (bytes < std::min(kLeastTimed, options_.chunk_bytes)) return;
  if (PullSource* source = Find(node)) source->speed = SpeedOf(bytes, time);
}

bool PullSources::OtherIsFaster(const Pace& pace, Nanos now) const {
  // In seconds.
  const auto for_bytes = [](uint64_t bytes, uint64_t speed) {
    return static_cast<double>(bytes) / static_cast<double>(speed);
  };
  const double most = static_cast<double>(options_.most_left) / kSecond;
  const double left = pace.speed == 0 ? most : for_bytes(pace.size - pace.arrived, pace.speed);
  if (left < most) return false;
  return std::any_of(sources_.begin(), sources_.end(), [&](const PullSource& other) {
    if (other.node == pace.node || !other.SaidItHas(pace.chunk)) return false;
    if (other.failures != 0 || other.retry_at > now || other.slow_until > now) return false;
    if (other.speed != 0) return 2 * for_bytes(pace.size, other.speed) <= left;
    return pace.speed != 0 && pace.arrived < pace.size / 2;
  });
}

void PullSources::Slow(NodeNumber node, Nanos now) {
  if (PullSource* source = Find(node)) source->slow_until = now + options_.slow_for;
}

PullSource* PullSources::ForFirst(Nanos now) {
  PullSource* chosen = nullptr;
  for (PullSource& source : sources_) {
    if (source.retry_at > now) continue;
    const auto rank = [&](const PullSource& each) {
      return std::tuple(each.slow_until > now, each.failures);
    };
    if (chosen == nullptr || rank(source) < rank(*chosen)) chosen = &source;
  }
  return chosen;
}

std::optional<PullSources::Choice> PullSources::ForChunk(
    absl::FunctionRef<std::optional<size_t>(const PullSource&)> chunk_of, Nanos now) {
  std::optional<Choice> best;
  for (PullSource& source : sources_) {
    if (source.retry_at > now) continue;
    // Those that have only a part come first: they spare the others.
    const auto rank = [&](const PullSource& each) {
      return std::tuple(each.slow_until > now, each.in_flight);
    };
    if (best && (rank(source) > rank(*best->source) ||
                 (rank(source) == rank(*best->source) && !source.partial))) {
      continue;
    }
    if (const std::optional<size_t> chunk = chunk_of(source)) {
      best = Choice{&source, *chunk};
    } else if (source.partial && source.in_flight == 0 && !source.chunks.empty()) {
      // It had nothing new when it last answered.
      source.chunks.clear();
      source.retry_at = now + options_.look_again;
    }
  }
  return best;
}

bool PullSources::Heed(NodeNumber node, const proto::BlockHead& head, Nanos now) {
  for (const uint32_t other : head.also_at()) Add(other, /*partial=*/true);
  if (head.outcome() != proto::BlockHead::FOUND && head.outcome() != proto::BlockHead::NOT_YET) {
    Drop(node);
    return false;
  }
  PullSource* source = Find(node);
  if (source == nullptr) return true;
  source->partial = head.partial();
  source->chunks = head.chunk_bytes() == options_.chunk_bytes ? head.chunks() : "";
  if (head.outcome() == proto::BlockHead::FOUND) return true;
  if (!std::any_of(source->chunks.begin(), source->chunks.end(),
                   [](char bits) { return bits != 0; })) {
    source->chunks.clear();
    source->retry_at = now + options_.look_again;
  }
  return true;
}

PullSources::Verdict PullSources::Failed(NodeNumber node, const absl::Status& why, Nanos now) {
  PullSource* source = Find(node);
  if (source == nullptr) return Verdict::kDropped;
  if (absl::IsDataLoss(why) && ++source->damaged >= options_.most_damaged) {
    Drop(node);
    return Verdict::kDamaged;
  }
  if (absl::IsNotFound(why)) {
    Drop(node);
    return Verdict::kDropped;
  }
  const Nanos wait = std::min(options_.last_retry,
                              options_.first_retry << std::min<uint32_t>(source->failures, 8));
  ++source->failures;
  source->retry_at = now + wait;
  return Verdict::kRetry;
}

Nanos PullSources::NextRetry(Nanos now) const {
  Nanos next = kForever;
  for (const PullSource& source : sources_) {
    if (source.retry_at > now) next = std::min(next, source.retry_at);
  }
  return next;
}

}  // namespace sheaf
