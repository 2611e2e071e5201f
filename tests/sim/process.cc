// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/node.h"
#include "worker/wire.h"

namespace sheaf::sim {
namespace {

// As in worker/runtime_drive.cc.
constexpr Nanos kShortestTick = kMillisecond;
constexpr Nanos kLongestTick = 200 * kMillisecond;
constexpr Nanos kBlockedAfter = 2 * kMillisecond;
constexpr Nanos kPlantedFreezeAt = 2 * kSecond;

template <class Message>
bool Parse(std::string_view body, Message* message) {
  return message->ParseFromArray(body.data(), static_cast<int>(body.size()));
}

}  // namespace

Nanos Process::OwnClock::Now() const {
  const Nanos now = world_.queue.now();
  if (world_.plant != Plant::kFrozenClock || now < kPlantedFreezeAt) return now;
  if (frozen_at_ == 0) frozen_at_ = now, ++world_.planted;
  return frozen_at_;
}

bool Until::await_ready() {
  if (done_()) return true;
  process_.EnterWait(*this);
  return false;
}

void Until::await_suspend(std::coroutine_handle<> handle) { handle_ = handle; }

bool Until::Ready() {
  if (done_()) {
    result_ = Waited::kDone;
  } else if (process_.node_over_) {
    result_ = Waited::kNodeOver;
  } else if (context_.cancelled != nullptr && context_.cancelled->load()) {
    result_ = Waited::kCancelled;
  } else if (process_.world_.now() >= deadline_) {
    result_ = Waited::kTimeout;
  } else {
    return false;
  }
  return true;
}

Process::Process(World& world, Network& network, Node& node, ProcessId self, ProcessRole role,
                 std::shared_ptr<Mapping> segment, const Programs& programs)
    : self(self),
      role(role),
      world_(world),
      network_(network),
      node_(node),
      programs_(programs),
      clock_(world),
      segment_(std::move(segment)) {
  const ProcessId raylet = RayletOf(self.node);
  network_.Attach(self, this);
  transport_ = std::make_unique<LocalTransport>(
      world_, network_, self, *this, [this, raylet](ProcessId peer) {
        if (peer == raylet) return;
        proto::ConnectRequest connect;
        connect.set_peer(peer.packed());
        SendMessage(transport_->To(raylet), FrameKind::kConnectRequest, connect);
      });
  transport_->AddRing(raylet);
  remote_ = std::make_unique<RelayTransport>(self.node, *transport_, world_.limits);
  auto opened = StoreClient::Open(
      self, UniqueFd(dup(node.arena_fd())), segment_, transport_->To(raylet),
      [this](ObjectId id, absl::StatusOr<ObjectLocation> location) {
        Error why;
        if (absl::IsUnavailable(location.status())) return owner_->resolver.OnComing(id);
        if (!location.ok()) {
          why = {StoreErrorKind(location.status()),
                 absl::StrCat("the object ", id.ToHex(), " is lost: ", location.status().message()),
                 {}};
        }
        owner_->resolver.OnLocated(id, location.ok() ? &*location : nullptr, why);
      });
  SHEAF_CHECK(
      opened.ok(),
      absl::StrCat("the arena of a simulated node cannot be mapped: ", opened.status().ToString(),
                   "; of 1,000 nodes: sysctl vm.max_map_count=1000000, ulimit -n 1000000")
          .c_str());
  store_ = *std::move(opened);
  owner_ = std::make_unique<OwnerState>(
      self, clock_, *remote_, *this, [this](std::span<const ObjectId> ids) { store_->Lookup(ids); },
      world_.limits);
  gcs_ = std::make_unique<GcsCalls>(self, clock_, *transport_);
  executor_ =
      std::make_unique<TaskExecutor>(self, clock_, *remote_, owner_->references, owner_->transits,
                                     *this, reinterpret_cast<ProcessPage*>(segment_->data()),
                                     metrics::PageOf(segment_->data()), world_.limits);
  executor_->set_store_bytes(store_->capacity_bytes());
  dispatch_ =
      std::make_unique<FrameDispatch>(self, *this, *remote_, *store_, *owner_, *executor_, *gcs_);
  owner_->actors.set_ask_gcs([this](ActorId actor) { AskGcsAboutActor(actor); });
  owner_->created_actors.set_on_named_end([this](ActorId actor) {
    proto::GcsRequest request;
    request.mutable_end_actor()->set_actor_id(actor.Binary());
    request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::LEFT);
    gcs_->Tell(std::move(request));
  });
}

Process::~Process() { Die(); }

void Process::Begin() {
  if (!alive) return;
  SpendLater(kShortestTick, [this] { Tick(); });
  if (role == ProcessRole::kWorker) {
    SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kWorkerReady, proto::WorkerReady());
    Spawn(RunWorker());
  } else {
    Spawn(RunDriver());
  }
  EndTurn();
}

void Process::Die() {
  if (!std::exchange(alive, false)) return;
  // The store first: from then on buffers that go leave their marks in the segment alone, as those
  // of the dead do.
  store_.reset();
  waiting_.clear();
  threads_.clear();
  user_state.reset();
  executor_.reset();
  for (CallExecution* call : std::exchange(ended_, {})) delete call;
  gcs_.reset();
  owner_.reset();
  templates_.clear();
  segment_.reset();
}

void Process::Spawn(Async<> thread) {
  threads_.push_back(std::move(thread));
  threads_.back().Start();
}

void Process::SpendLater(Nanos delay, std::function<void()> work) {
  world_.queue.After(delay, [this, work = std::move(work)] {
    if (!alive) return;
    if (paused_until > world_.now()) {
      SpendLater(paused_until - world_.now(), work);
      return;
    }
    work();
    EndTurn();
  });
}

void Process::EnterWait(Until& wait) {
  waiting_.push_back(&wait);
  if (wait.deadline_ != kForever)
    SpendLater(std::max<Nanos>(wait.deadline_ - world_.now(), 0), [] {});
  if (wait.context_.task.is_nil() || role != ProcessRole::kWorker) return;
  ++blocked_threads_;
  executor_->SetBlocked(true);
  SpendLater(kBlockedAfter, [this] {
    if (blocked_threads_ == 0 || told_blocked_) return;
    told_blocked_ = true;
    proto::Blocked blocked;
    blocked.set_blocked(true);
    SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kBlocked, blocked);
  });
}

void Process::LeaveWait(const Until& wait) {
  if (wait.context_.task.is_nil() || role != ProcessRole::kWorker) return;
  if (--blocked_threads_ != 0) return;
  executor_->SetBlocked(false);
  if (!std::exchange(told_blocked_, false)) return;
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kBlocked, proto::Blocked());
}

// Resumes one that need not wait any more.
bool Process::RunWaiting() {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    Until& wait = **at;
    if (!wait.Ready()) continue;
    waiting_.erase(at);
    if (wait.awaited().kind != Awaited::Kind::kNothing) world_.progress_at = world_.now();
    LeaveWait(wait);
    wait.handle_.resume();
    return true;
  }
  return false;
}

void Process::Settle() {
  do {
    for (size_t i = 0; i < ended_.size(); ++i) {
      executor_->Ended(*ended_[i]);
      executor_->Recycle(ended_[i]);
    }
    ended_.clear();
    owner_->references.CollectDropped();
    if (owner_->references.has_unpromoted() && store_->room_version() != promoted_at_ &&
        owner_->references.PromoteAgain()) {
      promoted_at_ = store_->room_version();
    }
    if (owner_->actors.holds_back()) owner_->actors.PushHeldBack();
    if (!actor_lookups_.empty()) TakeActorLookups();
  } while (RunWaiting() || !ended_.empty());
  threads_.remove_if([](const Async<>& thread) { return thread.done(); });
}

void Process::EndTurn() {
  if (!alive || std::exchange(in_turn_, true)) return;
  Settle();
  in_turn_ = false;
  transport_->BuryForgotten();
  if (sends_left == 0) {
    node_.Crash(*this, proto::Death::SIGNALLED, 9);
    return;
  }
  if (leaving_ && finished_) {
    node_.Leave(*this);
    return;
  }
  if (flush_scheduled_ || (!store_dirty_ && !owner_->references.NeedsFlush())) return;
  flush_scheduled_ = true;
  SpendLater(world_.Between(kMicrosecond, 50 * kMicrosecond), [this] {
    flush_scheduled_ = false;
    Flush();
  });
}

void Process::Flush() {
  owner_->references.Flush();
  store_->Flush();
  store_dirty_ = false;
}

void Process::Tick() {
  CheckLineage();
  const Nanos now = world_.now();
  executor_->argument_holds().Tick();
  const Nanos next = std::min(owner_->Tick(), gcs_->Tick());
  SpendLater(std::clamp(next, now + kShortestTick, now + kLongestTick) - now, [this] { Tick(); });
}

// What only lineage holds has no bytes in a store.
void Process::CheckLineage() {
  owner_->references.ForEach([&](ObjectEntry& object) {
    const bool lent = object.extra && !object.extra->borrowers.empty();
    if (object.lineage_uses == 0 || object.held() || object.doomed || lent) return;
    if (object.location.known()) {
      world_.oracle.Fail("O6", absl::StrCat("the object ", object.id.ToHex(),
                                            ", which only lineage holds, has bytes in a store"));
    }
  });
}

void Process::OnFrame(ProcessId from, const Frame& frame) {
  if (alive) dispatch_->OnFrame(from, frame);
}

void Process::OnRoom(ProcessId reader) { transport_->Flush(reader); }

void Process::OnGroupsChanged() {
  const bool single = executor_->groups().size() == 1 && executor_->default_group().limit == 1 &&
                      !executor_->is_async();
  for (auto& group : executor_->groups()) {
    const uint32_t threads = single                  ? 0
                             : executor_->is_async() ? 1
                                                     : std::min<uint32_t>(group->limit, 256);
    for (uint32_t i = 0; i < threads; ++i, ++group_threads_) Spawn(RunGroup(*group));
  }
}

void Process::OnNewRing(const proto::NewRing& ring) {
  transport_->AddRing(ProcessId::Unpack(ring.peer()));
}

void Process::DrainRings(ProcessId dead) { network_.Drain(dead, self); }

void Process::OnHostFrame(const Frame& frame) {
  if (frame.kind != FrameKind::kShutdown) return;
  leaving_ = true;
  if (role == ProcessRole::kDriver) node_over_ = true;
}

bool Process::is_at_rest() const {
  return (role == ProcessRole::kDriver ? finished_ : executor_->lease().lease() == 0) &&
         owner_->tasks.size() + owner_->references.size() + owner_->transits.size() +
                 executor_->queued() ==
             0;
}

std::string Process::Describe() {
  std::string words =
      absl::StrCat(role == ProcessRole::kDriver ? "driver " : "worker ", self.ToString());
  if (!alive) return words + " is dead";
  absl::StrAppend(&words, finished_ ? " has finished" : " runs", ", ", waiting_.size(),
                  " threads wait, ", owner_->tasks.size(), " calls, ", owner_->references.size(),
                  " objects, ", owner_->transits.size(), " transits, ", executor_->queued(),
                  " queued here");
  int shown = 0;
  owner_->tasks.ForEach([&](TaskRecord& task) {
    if (++shown > 8) return;
    absl::StrAppend(&words, "\n    ", owner_->tasks.Describe(task), " attempt ", task.attempt,
                    " state ", static_cast<int>(task.state), ": ", owner_->WordsOf(task));
  });
  shown = 0;
  owner_->references.ForEach([&](ObjectEntry& object) {
    if (++shown > 8) return;
    absl::StrAppend(&words, "\n    object ", object.id.ToHex(),
                    object.owned ? " owned" : " borrowed", " state ",
                    static_cast<int>(object.state), " handles ", object.handles.load(), " uses ",
                    object.uses, " borrowers ", object.extra ? object.extra->borrowers.size() : 0);
  });
  executor_->ForEachRunning([&](CallExecution& call) {
    absl::StrAppend(&words, "\n    runs ", call.spec().name(), " ", call.task().ToHex());
  });
  return words;
}

void Process::Free(ObjectId id, ObjectLocation location) {
  if (!store_) return;
  store_->Free(id, location);
  store_dirty_ = true;
}

ObjectLocation Process::Promote(ObjectId id, std::string_view bytes,
                                std::span<const ObjectId> nested) {
  if (!store_) return {};
  ObjectSpec spec;
  spec.id = id;
  spec.size_bytes = bytes.size();
  spec.nested = nested;
  store_dirty_ = true;
  absl::StatusOr<ObjectLocation> location = store_->Put(spec, bytes);
  if (location.ok()) return *location;
  store_->CancelCreate(id);
  return {};
}

}  // namespace sheaf::sim
