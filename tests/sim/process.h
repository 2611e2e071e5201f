// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver or worker: the real core (worker/core/process_core.h), in the order in which
// worker/runtime_* calls it. What blocks there waits here as a coroutine. Its death is the end of
// all of it, between any two events or after any frame sent.
//
//   process.cc        events, waiting, frames
//   process_calls.cc  what user code may call
//   process_run.cc    running calls
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "raylet/workers/attach_info.h"
#include "tests/sim/async.h"
#include "tests/sim/network.h"
#include "tests/sim/wait_limits.h"
#include "worker/core/process_core.h"

namespace sheaf::sim {

class Node;
class Process;

// What the running code is, to those it calls.
struct Context {
  TaskId task;  // Nil in drivers.
  const std::atomic<bool>* cancelled = nullptr;
  uint64_t hold = 0;  // Of ArgumentHolds.
};

enum class Waited { kDone, kTimeout, kCancelled, kNodeOver };

// co_await Until(...): resumes once `done` holds. It is asked after each change in the process.
class Until {
 public:
  Until(Process& process, const Context& context, Nanos deadline, std::function<bool()> done,
        Awaited awaited = {})
      : process_(process),
        context_(context),
        deadline_(deadline),
        done_(std::move(done)),
        awaited_(awaited) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> handle);
  Waited await_resume() const { return result_; }
  const Awaited& awaited() const { return awaited_; }

  // Of WaitLimits.
  WaitReason reason = WaitReason::kNone;
  Nanos reason_since = 0;

 private:
  friend class Process;
  bool Ready();

  Process& process_;
  const Context context_;
  const Nanos deadline_;
  const std::function<bool()> done_;
  const Awaited awaited_;
  std::coroutine_handle<> handle_;
  std::optional<BlockedCalls::Wait> blocked_;  // Of code that runs in a call.
  Waited result_ = Waited::kDone;
};

// What the processes of a run execute.
struct Programs {
  std::function<Async<>(Process&)> driver;
  std::function<Async<>(Process&, std::shared_ptr<CallExecution>, Context)> execute;
};

class Process final : public Endpoint, public FrameHost, public ExecutionHost {
 public:
  Process(World& world, Network& network, Node& node, ProcessId self, ProcessRole role,
          std::shared_ptr<Mapping> segment, const Programs& programs);
  ~Process() override;
  // Attached: the main thread begins.
  void Begin();
  // Nothing of it happens any more; what it put into rings and segments stays.
  void Die();
  // Something happened outside of frames: a timer, a coroutine that was started.
  void EndTurn() override;
  void OnFrame(ProcessId from, const Frame& frame) override;
  void OnRoom(ProcessId reader) override;

  const ProcessId self;
  const ProcessRole role;
  ProcessId job_driver;  // Of a worker. When it dies its workers see their calls fail in any way,
                         // until they die as well.
  bool said_ready = false;  // A worker, and its raylet has heard so.
  World& world() { return world_; }
  OwnerState& owner() { return core_->owner; }
  TaskExecutor& executor() { return core_->executor; }
  bool leaving() const { return leaving_; }
  bool finished() const { return finished_; }    // The main program has ended.
  bool node_over() const { return node_over_; }  // Waits end at once.
  JobNumber job() const { return core_->job(); }
  bool job_started() const {
    return core_->dispatch.job().answered && core_->dispatch.job().error.empty();
  }
  // A driver whose program has ended says goodbye and ends.
  void Leave();
  std::shared_ptr<void> user_state;  // What the program keeps in this process: an actor's fields.
  std::string Describe();            // What it waits for, for a failure.
  const std::list<Until*>& waiting() const { return waiting_; }
  bool is_at_rest() const;  // There is nothing to describe.

  // process_calls.cc
  const TemplateHandle& Template(const std::string& key,
                                 const std::function<void(proto::TaskTemplate*)>& fill);
  ObjectHandle Put(std::string_view bytes, std::span<const ObjectHandle> nested = {});
  Async<ObjectHandle> PutLarge(Context context, std::string bytes);
  ObjectHandle Submit(const TemplateHandle& spec, ArgumentList arguments, const Context& context);
  ObjectHandle CreateActor(const TemplateHandle& spec, ArgumentList arguments,
                           const Context& context);
  // What a call of `actor` waits for before it is made. False: the wait was ended.
  Async<bool> WaitForCredits(Context context, ObjectHandle actor);
  ObjectHandle SubmitToActor(const ObjectHandle& actor, const TemplateHandle& spec,
                             ArgumentList arguments, const Context& context);
  void Kill(const ObjectHandle& actor, bool no_restart);
  void EndDetachedActor(ActorId actor, bool no_restart);
  void Cancel(const ObjectHandle& object, bool force, bool recursive);
  // The call whose result `object` is.
  static TaskId TaskIdOf(const ObjectHandle& object) { return TaskOf(object.id()); }
  // False: the wait was ended (cancelled, or the node is over).
  Async<bool> Get(Context context, ObjectHandle object, ObjectView* view);
  Async<bool> GetPart(Context context, ObjectPart part, ObjectView* view);
  Async<> Sleep(Context context, Nanos duration);
  // The next item of a stream, or null: the end. False: the wait was ended.
  Async<bool> NextItem(Context context, ObjectHandle stream, ObjectHandle* item);
  Async<proto::GcsReply> AskGcs(Context context, proto::GcsRequest request);
  void AskState(const proto::StateQuery& query);                   // The answer is not waited for,
  std::function<void(const proto::StateAnswer&)> on_state_answer;  // but told here.
  PlacementGroupId CreateGroup(proto::GroupRequest request);
  void RemoveGroup(PlacementGroupId group);
  const proto::GroupState* FindGroup(PlacementGroupId group) { return core_->groups.Find(group); }
  // kCancelled: the wait was ended.
  Async<absl::StatusOr<MutableBuffer>> CreateNamed(Context context, ObjectSpec spec);
  // For a detached actor: registers it; and a handle from what the GCS says.
  Async<proto::GcsReply> RegisterDetached(Context context, TemplateHandle spec,
                                          ArgumentList arguments, ActorId* id);
  ObjectHandle HandleOfActor(const proto::ActorInfo& actor) {
    return core_->actor_directory.HandleOf(actor);
  }
  void Spawn(Async<> thread);

  // process_run.cc
  // Room for a large result, then returns it.
  Async<> ReturnLarge(Context context, CallExecution& call, std::string bytes);
  Async<bool> WaitForStream(Context context, CallExecution& call);

 private:
  friend class Until;
  // The clock of this process, which a planted bug may stop.
  class OwnClock final : public Clock {
   public:
    explicit OwnClock(World& world) : world_(world) {}
    Nanos Now() const override;

   private:
    World& world_;
    mutable Nanos frozen_at_ = 0;
  };

  void EnterWait(Until& wait);
  void LookAtBlocked();
  void Settle();
  bool RunWaiting();
  void HandleOwnFramesLater();
  void Flush();
  void Tick();
  void CheckLineage();
  void SpendLater(Nanos delay,
                  std::function<void()> work);  // In this process, unless it is dead by then.

  // process_run.cc
  Async<> RunWorker();
  Async<> RunDriver();
  Async<> RunGroup(ConcurrencyGroup& group);
  Async<> RunCall(std::shared_ptr<CallExecution> call);
  Async<> Execute(std::shared_ptr<CallExecution> call, Context context);
  Async<absl::Status> TakeArguments(std::shared_ptr<CallExecution> call, Context context);

  // FrameHost
  void OnGroupsChanged() override;
  void OnRunningCancelled(TaskId) override {}  // Programs look at the call's flag.
  void OnNewRing(const proto::NewRing& ring) override;
  void DrainRings(ProcessId dead) override;
  void OnHostFrame(const Frame& frame) override;
  // ExecutionHost
  absl::StatusOr<MutableBuffer> CreateValue(ObjectId id, uint32_t attempt, size_t size,
                                            std::span<const ObjectHandle> nested) override;
  absl::StatusOr<ObjectLocation> StoreValue(ObjectId id, uint32_t attempt, std::string_view bytes,
                                            std::span<const ObjectHandle> nested) override;
  std::optional<ObjectLocation> StoreIfBehind(const CallExecution& call, ObjectId id,
                                              std::string_view bytes,
                                              std::span<const ObjectHandle> nested) override;
  ObjectLocation SealValue(MutableBuffer buffer) override;
  std::vector<NestedReference> Outgoing(std::span<const ObjectHandle> nested) override;
  absl::Status SendItem(CallExecution& call, const std::string& item,
                        std::span<const ObjectHandle> nested) override;
  ObjectId NextStoredName() override;
  void Ended(CallExecution* call) override;

  World& world_;
  Network& network_;
  Node& node_;
  const Programs& programs_;
  OwnClock clock_;
  std::shared_ptr<Mapping> segment_;
  std::unique_ptr<LocalTransport> transport_;
  std::unique_ptr<ProcessCore> core_;  // While it lives.
  std::map<std::string, TemplateHandle> templates_;
  std::list<Until*> waiting_;
  std::list<Async<>> threads_;
  size_t group_threads_ = 0;
  Nanos blocked_due_ = kForever;  // When LookAtBlocked comes next.
  bool flush_scheduled_ = false;
  bool in_turn_ = false;
  bool leaving_ = false;
  bool node_over_ = false;
  bool finished_ = false;
};

}  // namespace sheaf::sim
