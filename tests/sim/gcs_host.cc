// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gcs_host.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/sim/node.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kTickPeriod = 100 * kMillisecond;

}  // namespace

// Batches get to disk in order, each after a while; a crash takes those that are under way, from
// some batch on.
class GcsHost::Disk final : public Storage {
 public:
  Disk(World& world, MemoryStorage::Disk& rows) : world_(world), rows_(rows) {}
  ~Disk() override { *alive_ = false; }

  void Commit(WriteBatch batch, Done done) override {
    pending_.push_back({std::move(batch), std::move(done), false});
    if (world_.Planted(Plant::kEarlyAck, 4)) {
      // Acknowledged from memory; kept much later, if at all.
      pending_.back().acknowledged = true;
      world_.queue.After(kMicrosecond, [alive = alive_, done = std::move(pending_.back().done)] {
        if (*alive) done(absl::OkStatus());
      });
      last_ = std::max(last_, world_.now()) + kSecond;
    }
    const Nanos took = world_.random.OneIn(20) ? world_.Between(kMillisecond, 50 * kMillisecond)
                                               : world_.Between(20 * kMicrosecond, kMillisecond);
    last_ = std::max(last_, world_.now() + took);
    world_.queue.At(last_, [this, alive = alive_] {
      if (*alive) FinishOne();
    });
  }
  absl::Status LoadAll(const Visitor& visit) override {
    for (const auto& [key, value] : rows_) visit(key.first, key.second, value);
    return absl::OkStatus();
  }
  bool read_only() const override { return false; }
  // The machine keeps what it had written when the process died.
  void Crash() {
    uint64_t kept = pending_.empty() ? 0 : world_.random.Below(pending_.size() + 1);
    if (world_.plant == Plant::kEarlyAck) kept = 0;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (i < kept) {
        Write(pending_[i].batch);
      } else {
        world_.Count(Fault::kGcsLostWrites);
      }
    }
    pending_.clear();
  }

 private:
  struct Pending {
    WriteBatch batch;
    Done done;
    bool acknowledged;
  };
  void Write(WriteBatch& batch) {
    for (sheaf::Write& write : batch) {
      auto key = std::make_pair(write.table, std::move(write.key));
      if (write.value) {
        rows_[std::move(key)] = *std::move(write.value);
      } else {
        rows_.erase(key);
      }
    }
  }
  void FinishOne() {
    Pending first = std::move(pending_.front());
    pending_.pop_front();
    Write(first.batch);
    if (!first.acknowledged) first.done(absl::OkStatus());
  }

  World& world_;
  MemoryStorage::Disk& rows_;
  std::deque<Pending> pending_;
  Nanos last_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

GcsHost::GcsHost(World& world) : world_(world), random_(world.random.Next()) {}
GcsHost::~GcsHost() = default;

void GcsHost::Start() {
  ++life_;
  disk_ = std::make_unique<Disk>(world_, rows_);
  GcsOptions options;
  options.version = "simulated";
  service_ = std::make_unique<GcsService>(options, world_.queue.clock(), *disk_, *this, random_);
  world_.trace.Note(world_.now(), kGcs, "starts");
  const absl::Status started = service_->Start();
  if (!started.ok())
    world_.oracle.Fail("O3", "the GCS does not start again: " + std::string(started.message()));
  ScheduleTick();
}

void GcsHost::Crash() {
  if (service_ == nullptr) return;
  world_.Count(Fault::kGcsCrash);
  world_.trace.Note(world_.now(), kGcs, "crashes");
  ++life_;
  service_.reset();
  disk_->Crash();
  disk_.reset();
  world_.queue.After(world_.Between(10 * kMillisecond, 800 * kMillisecond), [this] { Start(); });
}

void GcsHost::ScheduleTick() {
  world_.queue.After(kTickPeriod, [this, life = life_] {
    if (life != life_) return;
    service_->Tick();
    ScheduleTick();
  });
}

void GcsHost::Carry(Fate fate, Nanos* last_at, std::function<void()> deliver) {
  const uint64_t one_in = world_.faults.gcs_frame_fault_one_in;
  int copies = 1;
  Nanos delay = world_.Between(2 * kMicrosecond, 60 * kMicrosecond);
  bool in_order = true;
  switch (fate) {
    case Fate::kLost:
    case Fate::kReplyLost:
      world_.Count(Fault::kGcsFrameDropped);
      return;
    case Fate::kTwice:
    case Fate::kInFlight:
      world_.Count(Fault::kGcsFrameDuplicated);
      world_.queue.At(*last_at = std::max(*last_at, world_.now() + delay), deliver);
      if (fate == Fate::kTwice) {
        delay += world_.Between(kMillisecond, 200 * kMillisecond);
        in_order = false;
      }
      break;
    case Fate::kWhole:
      break;
  }
  if (fate == Fate::kWhole && one_in != 0 && world_.random.OneIn(one_in)) {
    switch (world_.random.Below(3)) {
      case 0:
        world_.Count(Fault::kGcsFrameDropped);
        return;
      case 1:
        world_.Count(Fault::kGcsFrameDuplicated);
        copies = 2;
        break;
      default:
        world_.Count(Fault::kGcsFrameDelayed);
        delay = world_.Between(kMillisecond, 700 * kMillisecond);
        in_order = false;  // Others overtake it.
    }
  }
  for (; copies > 0; --copies) {
    Nanos at = world_.now() + delay;
    if (in_order) at = *last_at = std::max(*last_at, at);
    world_.queue.At(at, deliver);
    delay += world_.Between(0, 5 * kMillisecond);
  }
}

Node* GcsHost::Find(ProcessId peer) const {
  for (Node* node : nodes_) {
    const bool named = peer.node != 0 && node->number() == peer.node;
    if (named || (peer.node == 0 && peer.process == node->index())) return node;
  }
  return nullptr;
}

bool GcsHost::Hears(const Node* node) const {
  if (node == nullptr || node->crashed()) return false;
  const auto away = away_until_.find(node);
  return away == away_until_.end() || away->second <= world_.now();
}

void GcsHost::SendToGcs(ProcessId from, FrameKind kind, std::string body) {
  if (!Hears(Find(from))) return;
  const Fate fate = world_.methods == nullptr || kind != FrameKind::kGcsRequest
                        ? Fate::kWhole
                        : world_.methods->OfFrameToGcs(body);
  Carry(fate, &last_from_[from], [this, life = life_, from, kind, body = std::move(body)] {
    // What is on its way when the GCS dies is lost with its connection.
    if (life != life_ || service_ == nullptr) return;
    world_.trace.Frame(world_.now(), from, kGcs, kind, body);
    service_->OnFrame(from, {kind, body});
  });
}

Channel& GcsHost::To(ProcessId peer) {
  return channels_.try_emplace(peer, *this, peer).first->second;
}

void GcsHost::NodeChannel::Send(Lane, FrameKind kind, std::string_view head,
                                std::string_view tail) {
  std::string body(head);
  body.append(tail);
  const Fate fate = host_.world_.methods == nullptr
                        ? Fate::kWhole
                        : host_.world_.methods->OfFrameFromGcs(kind, body);
  host_.Carry(fate, &host_.last_to_[peer_],
              [host = &host_, peer = peer_, kind, body = std::move(body)] {
                host->DeliverToNode(peer, kind, body);
              });
}

void GcsHost::DeliverToNode(ProcessId to, FrameKind kind, const std::string& body) {
  Node* node = Find(to);
  if (!Hears(node)) return;
  world_.trace.Frame(world_.now(), kGcs, to, kind, body);
  node->OnGcsFrame(to, kind, body);
}

}  // namespace sheaf::sim
