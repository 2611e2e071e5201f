// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gcs_head.h"

#include <algorithm>
#include <utility>

namespace sheaf::sim {
namespace {

constexpr Nanos kTickPeriod = 100 * kMillisecond;
constexpr Nanos kUntilOver = 50 * kMillisecond;    // Of a node that is to end.
constexpr Nanos kWallClock = 1'700'000 * kSecond;  // At the start of a run.

}  // namespace

GcsHead::GcsHead(World& world, uint64_t number, MemoryStorage::Disk rows, HeadEvents events)
    : world_(world),
      number_(number),
      events_(std::move(events)),
      random_(world.random.Next()),
      rows_(std::move(rows)),
      node_guard_(MakeGuard([this](PauseGuard::Frame frame) {
        if (!deposed_) events_.out(frame.to, frame.kind, std::move(frame.body));
      })) {}

GcsHead::~GcsHead() = default;

std::unique_ptr<PauseGuard> GcsHead::MakeGuard(std::function<void(PauseGuard::Frame)> send) {
  PauseGuardOptions options;
  if (world_.plant == Plant::kHastyHead) options.longest_pause = kForever;
  return std::make_unique<PauseGuard>(options, world_.queue.clock(), std::move(send));
}

void GcsHead::At(Nanos when, std::function<void()> work) {
  world_.queue.At(when, [this, work = std::move(work)]() mutable {
    if (!asleep()) return work();
    At(asleep_until_, std::move(work));
  });
}

void GcsHead::Start() {
  if (deposed_) return;
  ++life_;
  disk_ = std::make_unique<GcsDisk>(
      world_, [this](Nanos when, std::function<void()> work) { At(when, std::move(work)); }, rows_,
      full_until_);
  disk_->on_durable = [this] { events_.on_serving(); };
  gcs_guard_ = MakeGuard([this](PauseGuard::Frame frame) { node_guard_->Pass(std::move(frame)); });
  GcsOptions options;
  options.version = "simulated";
  if (life_ == 1) options.return_within = kReturnToHead;
  options.least_term = terms_.Least(kWallClock + world_.now());
  service_ = std::make_unique<GcsService>(options, world_.queue.clock(), *disk_, *this, random_);
  world_.trace.Note(world_.now(), kGcs, "starts", "on head ", number_);
  const absl::Status started = service_->Start();
  if (!started.ok())
    world_.oracle.Fail("O3", "the GCS does not start again: " + std::string(started.message()));
  terms_.Began(service_->term());
  fence_.SetTerm(GcsTerm::Of(service_->cluster_id(), service_->term()));
  events_.on_start();
  if (life_ == 1) At(world_.now() + kTickPeriod, [this] { Pulse(); });
}

void GcsHead::Crash(bool may_be_away) {
  if (!up()) return;
  if (world_.random.OneIn(2)) return CrashNow(may_be_away);
  disk_->on_commit = [this, may_be_away, life = life_] {
    if (life == life_ && world_.faults.gcs_crash_every != 0) CrashNow(may_be_away);
  };
}

void GcsHead::CrashNow(bool may_be_away) {
  world_.Count(Fault::kGcsCrash);
  world_.trace.Note(world_.now(), kGcs, "crashes", "on head ", number_);
  ++life_;
  service_.reset();
  gcs_guard_.reset();
  disk_->Crash();
  disk_.reset();
  Nanos away = world_.Between(10 * kMillisecond, 800 * kMillisecond);
  const uint64_t one_in = world_.faults.gcs_away_one_in;
  if (may_be_away && one_in != 0 && world_.random.OneIn(one_in)) {
    world_.Count(Fault::kGcsAway);
    away = world_.Between(20 * kSecond, 150 * kSecond);
    events_.on_away();
  }
  back_at_ = world_.now() + away;
  At(back_at_, [this] { Start(); });
}

void GcsHead::Stop(Nanos until) {
  world_.trace.Note(world_.now(), kGcs, "stands still", "on head ", number_);
  asleep_until_ = until;
  world_.Planted(Plant::kHastyHead);  // From its waking on (MakeGuard).
}

void GcsHead::Depose() {
  if (std::exchange(deposed_, true)) return;
  world_.trace.Note(world_.now(), kGcs, "hears of a later term", "on head ", number_);
  At(world_.now() + kUntilOver, [this] {
    ++life_;
    service_.reset();
    disk_.reset();
  });
}

// Time goes on by the pulses of the node, for both processes.
void GcsHead::Pulse() {
  if (deposed_) return;
  node_guard_->Turn();
  if (service_ != nullptr) {
    gcs_guard_->Turn();
    service_->Tick();
  }
  At(world_.now() + kTickPeriod, [this] { Pulse(); });
}

void GcsHead::OnFrame(ProcessId from, FrameKind kind, std::string_view body) {
  if (service_ != nullptr) service_->OnFrame(from, {kind, body});
}

Channel& GcsHead::To(ProcessId peer) {
  return channels_.try_emplace(peer, *this, peer).first->second;
}

void GcsHead::NodeChannel::Send(Lane, FrameKind kind, std::string_view head,
                                std::string_view tail) {
  std::string body(head);
  body.append(tail);
  head_.gcs_guard_->Pass({peer_, kind, std::move(body)});
}

}  // namespace sheaf::sim
