// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/parse_frame.h"
#include "tests/sim/node.h"
#include "worker/core/state_rows.h"

namespace sheaf::sim {
namespace {

// As in worker/driver.cc.
constexpr Nanos kShortestTick = kMillisecond;
constexpr Nanos kLongestTick = 200 * kMillisecond;
constexpr Nanos kPlantedFreezeAt = 2 * kSecond;

WaitsFor WaitsForOf(Awaited::Kind kind) {
  switch (kind) {
    case Awaited::Kind::kRoom:
      return WaitsFor::kRoom;
    case Awaited::Kind::kArguments:
      return WaitsFor::kArguments;
    case Awaited::Kind::kAdmission:
      return WaitsFor::kAdmission;
    default:
      return WaitsFor::kOthers;
  }
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
  auto opened = ProcessCore::Open({.self = self,
                                   .clock = clock_,
                                   .rings = *transport_,
                                   .ring_self = [this](Lane) { HandleOwnFramesLater(); },
                                   .segment = segment_,
                                   .frames = *this,
                                   .executions = *this,
                                   .limits = world_.limits},
                                  UniqueFd(dup(node.arena_fd())));
  SHEAF_CHECK(
      opened.ok(),
      absl::StrCat("the arena of a simulated node cannot be mapped: ", opened.status().ToString(),
                   "; of 1,000 nodes: sysctl vm.max_map_count=1000000, ulimit -n 1000000")
          .c_str());
  core_ = *std::move(opened);
}

Process::~Process() { Die(); }

void Process::Begin() {
  if (!alive) return;
  SpendLater(kShortestTick, [this] { Tick(); });
  if (role == ProcessRole::kWorker) {
    SendMessage(core_->raylet(), FrameKind::kWorkerReady, proto::WorkerReady());
    Spawn(RunWorker());
  } else {
    Spawn(RunDriver());
  }
  EndTurn();
}

void Process::Die() {
  if (!std::exchange(alive, false)) return;
  waiting_.clear();
  threads_.clear();
  user_state.reset();
  core_.reset();
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
  wait.blocked_.emplace(core_->blocked_calls, WaitsForOf(wait.awaited().kind), /*in_call=*/true,
                        wait.context_.hold, world_.now());
  LookAtBlocked();
}

// What follows when calls have waited for so long.
void Process::LookAtBlocked() {
  Nanos next = kForever;
  for (Until* wait : waiting_) {
    if (wait->blocked_) next = std::min(next, wait->blocked_->Look(world_.now()));
  }
  if (next >= blocked_due_) return;
  blocked_due_ = next;
  SpendLater(next - world_.now(), [this] {
    blocked_due_ = kForever;
    LookAtBlocked();
  });
}

// Resumes one that need not wait any more.
bool Process::RunWaiting() {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    Until& wait = **at;
    if (!wait.Ready()) continue;
    waiting_.erase(at);
    if (wait.awaited().kind != Awaited::Kind::kNothing) world_.progress_at = world_.now();
    wait.blocked_.reset();
    wait.handle_.resume();
    return true;
  }
  return false;
}

void Process::Settle() {
  do {
    core_->executor.FinishEnded();
    if (core_->owner.actors.holds_back()) core_->owner.actors.PushHeldBack();
    core_->AfterFrames();
  } while (RunWaiting() || core_->executor.has_ended());
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
  if (flush_scheduled_ || !core_->NeedsFlush()) return;
  flush_scheduled_ = true;
  SpendLater(world_.Between(kMicrosecond, 50 * kMicrosecond), [this] {
    flush_scheduled_ = false;
    core_->Flush();
  });
}

void Process::Tick() {
  CheckLineage();
  const Nanos now = world_.now();
  SpendLater(std::clamp(core_->Tick(), now + kShortestTick, now + kLongestTick) - now,
             [this] { Tick(); });
}

// What only lineage holds has no bytes in a store.
void Process::CheckLineage() {
  owner().references.ForEach([&](ObjectEntry& object) {
    const bool lent = object.extra && !object.extra->borrowers.empty();
    if (object.lineage_uses == 0 || object.held() || object.doomed || lent) return;
    if (object.location.known()) {
      world_.oracle.Fail("O6", absl::StrCat("the object ", object.id.ToHex(),
                                            ", which only lineage holds, has bytes in a store"));
    }
  });
}

void Process::OnFrame(ProcessId from, const Frame& frame) {
  if (alive) core_->dispatch.OnFrame(from, frame);
}

void Process::OnRoom(ProcessId reader) { transport_->Flush(reader); }

void Process::OnGroupsChanged() {
  if (executor().is_serial()) return;
  for (auto& group : executor().groups()) {
    const uint32_t threads = executor().is_async() ? 1 : std::min<uint32_t>(group->limit, 256);
    for (uint32_t i = 0; i < threads; ++i, ++group_threads_) Spawn(RunGroup(*group));
  }
}

void Process::OnNewRing(const proto::NewRing& ring) {
  transport_->AddRing(ProcessId::Unpack(ring.peer()));
}

void Process::DrainRings(ProcessId dead) { network_.Drain(dead, self); }

void Process::HandleOwnFramesLater() {
  SpendLater(world_.Between(kMicrosecond, 50 * kMicrosecond), [this] { core_->HandleOwnFrames(); });
}

void Process::OnHostFrame(const Frame& frame) {
  if (frame.kind == FrameKind::kStateQuery) {
    if (const auto query = ParseFrame<proto::StateQuery>(frame); query.ok())
      SendMessage(core_->raylet(), FrameKind::kStateAnswer, AnswerOf(*core_, *query));
    return;
  }
  if (frame.kind == FrameKind::kStateAnswer && on_state_answer) {
    if (const auto answer = ParseFrame<proto::StateAnswer>(frame); answer.ok())
      on_state_answer(*answer);
    return;
  }
  if (frame.kind != FrameKind::kShutdown) return;
  leaving_ = true;
  if (role == ProcessRole::kDriver) node_over_ = true;
}

bool Process::is_at_rest() const {
  const OwnerState& owner = core_->owner;
  const TaskExecutor& executor = core_->executor;
  return (role == ProcessRole::kDriver ? finished_ : executor.lease().lease() == 0) &&
         owner.tasks.size() + owner.references.size() + owner.transits.size() + executor.queued() ==
             0;
}

std::string Process::Describe() {
  std::string words =
      absl::StrCat(role == ProcessRole::kDriver ? "driver " : "worker ", self.ToString());
  if (!alive) return words + " is dead";
  absl::StrAppend(&words, finished_ ? " has finished" : " runs", ", ", waiting_.size(),
                  " threads wait, ", owner().tasks.size(), " calls, ", owner().references.size(),
                  " objects, ", owner().transits.size(), " transits, ", executor().queued(),
                  " queued here");
  int shown = 0;
  owner().tasks.ForEach([&](TaskRecord& task) {
    if (++shown > 8) return;
    absl::StrAppend(&words, "\n    ", owner().tasks.Describe(task), " attempt ", task.attempt,
                    " state ", static_cast<int>(task.state), ": ", owner().WordsOf(task));
  });
  shown = 0;
  owner().references.ForEach([&](ObjectEntry& object) {
    if (++shown > 8) return;
    absl::StrAppend(&words, "\n    object ", object.id.ToHex(),
                    object.owned ? " owned" : " borrowed", " state ",
                    static_cast<int>(object.state), " handles ", object.handles.load(), " uses ",
                    object.uses, " borrowers ", object.extra ? object.extra->borrowers.size() : 0);
  });
  executor().ForEachRunning([&](CallExecution& call) {
    absl::StrAppend(&words, "\n    runs ", call.spec().name(), " ", call.task().ToHex());
  });
  return words;
}

}  // namespace sheaf::sim
