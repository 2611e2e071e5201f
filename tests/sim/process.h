// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver or worker: the real OwnerState, TaskExecutor, GcsCalls and StoreClient, in the order in
// which worker/runtime_* calls them. What blocks there waits here as a coroutine. Its death is the
// end of all of it, between any two events or after any frame sent.
//
//   process.cc        events, waiting, frames
//   process_calls.cc  what user code may call
//   process_run.cc    running calls
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "object_store/store_client.h"
#include "raylet/workers/attach_info.h"
#include "tests/sim/async.h"
#include "tests/sim/network.h"
#include "tests/sim/wait_limits.h"
#include "worker/executor/task_executor.h"
#include "worker/frame_dispatch.h"
#include "worker/gcs_calls.h"
#include "worker/owner_state.h"
#include "worker/relay_transport.h"

namespace sheaf::sim {

class Node;
class Process;

// What the running code is, to those it calls.
struct Context {
  TaskId task;  // Nil in drivers.
  const std::atomic<bool>* cancelled = nullptr;
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
  Waited result_ = Waited::kDone;
};

// The arguments of one call, in order; as worker/runtime.h's ArgumentList.
class Arguments {
 public:
  void AddValue(std::string_view bytes, std::span<const ObjectHandle> nested = {});
  void AddReference(const ObjectHandle& object);

 private:
  friend class Process;
  std::string encoded_;
  std::vector<std::pair<ObjectHandle, uint32_t>> references_;
  std::vector<ObjectHandle> nested_;
};

// What the processes of a run execute.
struct Programs {
  std::function<Async<>(Process&)> driver;
  std::function<Async<>(Process&, std::shared_ptr<CallExecution>, Context)> execute;
};

class Process final : public Endpoint, public FrameHost, public LocalStore, public ExecutionHost {
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
  OwnerState& owner() { return *owner_; }
  TaskExecutor& executor() { return *executor_; }
  bool leaving() const { return leaving_; }
  bool finished() const { return finished_; }    // The main program has ended.
  bool node_over() const { return node_over_; }  // Waits end at once.
  JobNumber job() const { return dispatch_->job().number; }
  bool job_started() const { return dispatch_->job().answered && dispatch_->job().error.empty(); }
  // A driver whose program has ended says goodbye and ends.
  void Leave();
  std::shared_ptr<void> user_state;  // What the program keeps in this process: an actor's fields.
  std::string Describe();            // What it waits for, for a failure.
  const std::list<Until*>& waiting() const { return waiting_; }
  bool is_at_rest() const;  // There is nothing to describe.

  // process_calls.cc
  TemplateRecord& Template(const std::string& key,
                           const std::function<void(proto::TaskTemplate*)>& fill);
  ObjectHandle Put(std::string_view bytes, std::span<const ObjectHandle> nested = {});
  Async<ObjectHandle> PutLarge(Context context, std::string bytes);
  std::vector<ObjectHandle> Submit(const TemplateRecord& spec, Arguments arguments,
                                   const Context& context);
  ObjectHandle CreateActor(const TemplateRecord& spec, Arguments arguments, const Context& context);
  // What a call of `actor` waits for before it is made. False: the wait was ended.
  Async<bool> WaitForCredits(Context context, ObjectHandle actor);
  ObjectHandle SubmitToActor(const ObjectHandle& actor, const TemplateRecord& spec,
                             Arguments arguments, const Context& context);
  void Kill(const ObjectHandle& actor, bool no_restart);
  void EndDetachedActor(ActorId actor, bool no_restart);
  void Cancel(const ObjectHandle& object, bool force, bool recursive);
  // The call whose result `object` is.
  static TaskId TaskIdOf(const ObjectHandle& object) { return TaskOf(object.id()); }
  bool TryView(const ObjectHandle& object, ObjectView* view);
  // False: the wait was ended (cancelled, or the node is over).
  Async<bool> Get(Context context, ObjectHandle object, ObjectView* view);
  Async<> Sleep(Context context, Nanos duration);
  // The next item of a stream, or null: the end. False: the wait was ended.
  Async<bool> NextItem(Context context, ObjectHandle stream, ObjectHandle* item);
  Async<proto::GcsReply> AskGcs(Context context, proto::GcsRequest request);
  void AskState(const proto::StateQuery& query);  // The answer is not waited for.
  PlacementGroupId CreateGroup(proto::GroupRequest request);
  void RemoveGroup(PlacementGroupId group);
  proto::GroupState* FindGroup(PlacementGroupId group);
  // False: `why` says what the store refuses, or no kind: the wait was ended.
  Async<bool> CreateNamed(Context context, ObjectSpec spec, MutableBuffer* buffer, Error* why);
  // For a detached actor: registers it; and a handle from what the GCS says.
  Async<proto::GcsReply> RegisterDetached(Context context, const TemplateRecord& spec,
                                          Arguments arguments, const std::string& name,
                                          bool get_if_exists, ActorId* id);
  ObjectHandle HandleOfActor(const proto::ActorInfo& actor);
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
  void LeaveWait(const Until& wait);
  void Settle();
  bool RunWaiting();
  void Flush();
  void Tick();
  void CheckLineage();
  void SpendLater(Nanos delay,
                  std::function<void()> work);  // In this process, unless it is dead by then.
  TaskRecord* AddTask(const TemplateRecord& spec, Arguments* arguments, const Context& context);
  void AskGcsAboutActor(ActorId actor);
  void TakeActorLookups();

  // process_run.cc
  Async<> RunWorker();
  Async<> RunDriver();
  Async<> RunGroup(ConcurrencyGroup& group);
  Async<> RunCall(std::shared_ptr<CallExecution> call);
  Async<> Execute(std::shared_ptr<CallExecution> call, Context context);
  Async<bool> FetchArguments(Context context, CallExecution& call, std::string* why_not);

  // FrameHost
  void OnGroupsChanged() override;
  void OnRunningCancelled(TaskId) override {}  // Programs look at the call's flag.
  void OnNewRing(const proto::NewRing& ring) override;
  void DrainRings(ProcessId dead) override;
  void OnHostFrame(const Frame& frame) override;
  // LocalStore
  void Free(ObjectId id, ObjectLocation location) override;
  ObjectLocation Promote(ObjectId id, std::string_view bytes,
                         std::span<const ObjectId> nested) override;
  bool Has(const ObjectLocation& location) override { return store_->Has(location); }
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
  std::unique_ptr<RelayTransport> remote_;  // The same, and other nodes.
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<OwnerState> owner_;
  std::unique_ptr<TaskExecutor> executor_;
  std::unique_ptr<GcsCalls> gcs_;
  std::unique_ptr<FrameDispatch> dispatch_;
  std::map<std::string, std::unique_ptr<TemplateRecord>> templates_;
  std::map<ActorId, uint64_t> actor_lookups_;
  std::vector<CallExecution*> ended_;
  std::list<Until*> waiting_;
  std::list<Async<>> threads_;
  size_t group_threads_ = 0;
  int blocked_threads_ = 0;
  bool told_blocked_ = false;
  uint64_t promoted_at_ = 0;
  bool flush_scheduled_ = false;
  bool store_dirty_ = false;  // The store has something to flush.
  bool in_turn_ = false;
  bool leaving_ = false;
  bool node_over_ = false;
  bool finished_ = false;
};

}  // namespace sheaf::sim
