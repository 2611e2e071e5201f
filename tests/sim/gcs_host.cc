// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gcs_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/node.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kTickPeriod = 100 * kMillisecond;
constexpr Nanos kSilence = 5 * kSecond;  // After so long a link is down (rpc/links.h).
constexpr Nanos kPlantedLease = 4 * kSecond;

bool IsDeath(const Write& write) {
  proto::NodeInfo info;
  return write.table == Table::kNodes && write.value && info.ParseFromString(*write.value) &&
         info.state() == proto::NodeInfo::DEAD;
}

// The word to a node that it was declared dead becomes a lease.
void Unfence(World& world, FrameKind kind, std::string* body) {
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(*body) || !reply.has_heartbeat() ||
      !reply.heartbeat().fenced() || !world.Planted(Plant::kUnfenced))
    return;
  reply.mutable_heartbeat()->set_fenced(false);
  reply.mutable_heartbeat()->set_lease_ns(kPlantedLease);
  *body = reply.SerializeAsString();
}

}  // namespace

// Batches get to disk in order, each after a while; a crash takes those that are under way, from
// some batch on.
class GcsHost::Disk final : public Storage {
 public:
  Disk(World& world, MemoryStorage::Disk& rows, const Nanos& full_until)
      : world_(world), rows_(rows), full_until_(full_until) {}
  ~Disk() override { *alive_ = false; }

  void Commit(WriteBatch batch, Done done) override {
    CommitOne(std::move(batch), std::move(done), /*vital=*/false);
  }
  // What the disk has in reserve is never used up.
  void CommitVital(WriteBatch batch, Done done) override {
    CommitOne(std::move(batch), std::move(done), /*vital=*/true);
  }
  void CommitOne(WriteBatch batch, Done done, bool vital) {
    if (on_commit) world_.queue.After(kMicrosecond, std::exchange(on_commit, nullptr));
    pending_.push_back({std::move(batch), std::move(done), false, vital});
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
  bool read_only() const override { return world_.now() < full_until_; }
  std::function<void()> on_commit;   // Runs once, in the middle of the next.
  std::function<void()> on_durable;  // Runs once, behind the next.
  // The machine keeps what it had written when the process died.
  void Crash() {
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

 private:
  struct Pending {
    WriteBatch batch;
    Done done;
    bool acknowledged;
    bool vital;
  };
  void Write(WriteBatch& batch) {
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
  void FinishOne() {
    Pending first = std::move(pending_.front());
    pending_.pop_front();
    if (read_only() && !first.vital && !first.acknowledged)
      return first.done(absl::ResourceExhaustedError("the disk of the GCS is full"));
    Write(first.batch);
    if (!first.acknowledged) first.done(absl::OkStatus());
    if (on_durable) std::exchange(on_durable, nullptr)();
  }

  World& world_;
  MemoryStorage::Disk& rows_;
  const Nanos& full_until_;
  std::deque<Pending> pending_;
  Nanos last_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

GcsHost::GcsHost(World& world) : world_(world), random_(world.random.Next()) {}
GcsHost::~GcsHost() = default;

void GcsHost::Start() {
  ++life_;
  disk_ = std::make_unique<Disk>(world_, rows_, full_until_);
  disk_->on_durable = [this] { TellLinks(true); };
  GcsOptions options;
  options.version = "simulated";
  service_ = std::make_unique<GcsService>(options, world_.queue.clock(), *disk_, *this, random_);
  world_.trace.Note(world_.now(), kGcs, "starts");
  const absl::Status started = service_->Start();
  if (!started.ok())
    world_.oracle.Fail("O3", "the GCS does not start again: " + std::string(started.message()));
  if (life_ > 1 && world_.plant == Plant::kEarlyRecovery) {
    proto::GcsRequest nothing;
    nothing.mutable_node_report();
    for (const Node* node : nodes_) {
      if (!node->up() || node->crashed()) continue;
      ++world_.planted;
      nothing.set_client(RayletOf(node->number()).packed());
      service_->OnFrame(RayletOf(node->number()),
                        {FrameKind::kGcsRequest, nothing.SerializeAsString()});
    }
  }
  ScheduleTick();
}

void GcsHost::Crash() {
  if (service_ == nullptr) return;
  if (world_.random.OneIn(2)) return CrashNow();
  disk_->on_commit = [this, life = life_] {
    if (life == life_ && world_.faults.gcs_crash_every != 0) CrashNow();
  };
}

void GcsHost::CrashNow() {
  world_.Count(Fault::kGcsCrash);
  world_.trace.Note(world_.now(), kGcs, "crashes");
  ++life_;
  service_.reset();
  disk_->Crash();
  disk_.reset();
  Nanos away = world_.Between(10 * kMillisecond, 800 * kMillisecond);
  const uint64_t one_in = world_.faults.gcs_away_one_in;
  if (one_in != 0 && world_.random.OneIn(one_in)) {
    world_.Count(Fault::kGcsAway);
    away = world_.Between(20 * kSecond, 150 * kSecond);
    world_.queue.After(kSilence, [this, life = life_] {
      if (life == life_) TellLinks(false);
    });
  }
  back_at_ = world_.now() + away;
  world_.queue.At(back_at_, [this] { Start(); });
}

void GcsHost::TellLinks(bool up) {
  for (Node* node : nodes_) node->OnGcsLink(up, up ? service_->term() : 0);
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
  Node* node = Find(from);
  if (!Hears(node)) return;
  // It would lie in the link until the GCS is back, however long that is.
  if (!node->hears_gcs())
    world_.oracle.Fail(
        "O7", absl::StrCat("node ", from.node, " speaks to a GCS that it knows to be away"));
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
  host_.Judge(kind, body);
  if (host_.world_.plant == Plant::kUnfenced) Unfence(host_.world_, kind, &body);
  if (host_.world_.plant == Plant::kStaleHolder) host_.NameFirstHolder(kind, &body);
  const Fate fate = host_.world_.methods == nullptr
                        ? Fate::kWhole
                        : host_.world_.methods->OfFrameFromGcs(kind, body);
  host_.Carry(fate, &host_.last_to_[peer_],
              [host = &host_, peer = peer_, kind, body = std::move(body)] {
                host->DeliverToNode(peer, kind, body);
              });
}

void GcsHost::Judge(FrameKind kind, const std::string& body) {
  if (kind == FrameKind::kGcsEvent) {
    proto::GcsEvent event;
    if (event.ParseFromString(body) && event.delta().change().has_node())
      SaysOf(event.delta().change().node());
    return;
  }
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(body)) return;
  // Who is refused or fenced is dead, though others may not have heard of it yet.
  const NodeNumber asker = ProcessId::Unpack(reply.client()).node;
  if (asker != 0 &&
      (static_cast<ErrorKind>(reply.error()) == ErrorKind::kNodeDied || reply.heartbeat().fenced()))
    world_.oracle.NodeDied(asker);
  for (const proto::NodeInfo& node : reply.nodes().nodes()) SaysOf(node);
  for (const proto::Change& item : reply.snapshot().items()) {
    if (item.has_node()) SaysOf(item.node());
  }
}

void GcsHost::NameFirstHolder(FrameKind kind, std::string* body) {
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(*body) || reply.actor().name().empty())
    return;
  const proto::ActorInfo& first =
      first_holders_.try_emplace(reply.actor().name(), reply.actor()).first->second;
  if (static_cast<ErrorKind>(reply.error()) != ErrorKind::kActorNameTaken ||
      first.actor_id() == reply.actor().actor_id() || !world_.Planted(Plant::kStaleHolder))
    return;
  *reply.mutable_actor() = first;
  *body = reply.SerializeAsString();
}

void GcsHost::SaysOf(const proto::NodeInfo& node) {
  if (node.state() == proto::NodeInfo::DEAD) {
    said_dead_.insert(node.node());
    world_.oracle.NodeDied(node.node());
  } else if (said_dead_.contains(node.node())) {
    world_.oracle.Fail("O3", absl::StrCat("the GCS has said that node ", node.node(),
                                          " is dead, and says that it lives"));
  }
}

void GcsHost::DeliverToNode(ProcessId to, FrameKind kind, const std::string& body) {
  Node* node = Find(to);
  if (!Hears(node)) return;
  world_.trace.Frame(world_.now(), kGcs, to, kind, body);
  node->OnGcsFrame(to, kind, body);
}

}  // namespace sheaf::sim
