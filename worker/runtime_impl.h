// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Runtime of a real process: one lock over its core (core/process_core.h) and the rings, and
// the threads that drive them.
//
//   runtime_attach.cc   joining a node and leaving it
//   runtime_drive.cc    the lock, the driving token, the bell, the background thread
//   runtime_frames.cc   frames that concern the process itself; others: core/frame_dispatch.h
//   runtime_objects.cc  put, create, seal, get, wait
//   runtime_calls.cc    tasks, actors, streams, cancellation
//   runtime_arguments.cc  what is too large for the frame of a call
//   runtime_node.cc     placement groups, key-value, questions about the cluster's state
//   runtime_worker.cc   running calls
//   runtime_loop.cc     event loops of async actors
//
// Driving. Whoever waits drains the rings itself: driving is a token that one thread holds. The
// others that wait sleep, each as a Waiter: the holder asks for them whether they have what they
// wait for, wakes those that have, and gives one of the rest the token when it leaves.
// When no thread waits (user code runs), the background thread looks after the rings: called for by
// the bell (kAway) while little happens, and once a millisecond while much does, so that a stream
// of replies costs no wake-up each.
// An event loop with nothing to do waits for calls in the same way, while the main thread watches
// its descriptors.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/unique_fd.h"
#include "shm/attach_client.h"
#include "shm/mailbox.h"
#include "worker/callback_runner.h"
#include "worker/core/loop_calls.h"
#include "worker/core/process_core.h"
#include "worker/log_printer.h"
#include "worker/loop_watch.h"
#include "worker/new_rings.h"
#include "worker/runtime.h"

namespace sheaf {

class RuntimeImpl final : public Runtime,
                          public FrameHandler,
                          public FrameHost,
                          public ExecutionHost {
 public:
  RuntimeImpl(RuntimeOptions options, Attached attached);
  ~RuntimeImpl() override;
  bool Stop(Nanos patience) override;
  absl::Status Begin();  // Store, threads, job or readiness.

  int RunWorker() override;
  absl::Status WatchLoop(int descriptor) override;
  bool TakeCalls(Nanos deadline, std::vector<std::shared_ptr<Execution>>* calls) override;
  absl::StatusOr<ObjectHandle> Put(std::string_view bytes,
                                   std::span<const ObjectHandle> nested) override;
  absl::StatusOr<MutableBuffer> Create(size_t size, Nanos deadline,
                                       std::span<const ObjectHandle> nested) override;
  absl::StatusOr<ObjectHandle> Seal(MutableBuffer buffer,
                                    std::span<const ObjectHandle> nested) override;
  absl::Status Get(std::span<const ObjectHandle> objects, Nanos deadline,
                   std::vector<ObjectView>* views) override;
  absl::StatusOr<std::vector<size_t>> Wait(std::span<const ObjectHandle> objects,
                                           size_t num_returns, Nanos deadline, bool bring) override;
  bool IsReady(const ObjectHandle& object) override;
  void OnReady(const ObjectHandle& object, std::function<void()> callback) override;
  void SignalReady(const ObjectHandle& object, std::function<void()> signal) override;
  absl::StatusOr<ObjectHandle> HandleFor(ObjectId id) override;
  absl::StatusOr<TemplateHandle> MakeTemplate(proto::TaskTemplate spec) override;
  absl::StatusOr<std::vector<ObjectHandle>> Submit(const TemplateHandle& task,
                                                   ArgumentList&& arguments) override;
  absl::StatusOr<ObjectHandle> SubmitOne(const TemplateHandle& task,
                                         ArgumentList&& arguments) override;
  absl::StatusOr<std::optional<ObjectHandle>> NextItem(const ObjectHandle& stream,
                                                       Nanos deadline) override;
  absl::Status Cancel(const ObjectHandle& object, bool force, bool recursive) override;
  absl::StatusOr<ObjectHandle> CreateActor(const TemplateHandle& creation,
                                           ArgumentList arguments) override;
  absl::StatusOr<std::vector<ObjectHandle>> SubmitToActor(const ObjectHandle& actor,
                                                          const TemplateHandle& method,
                                                          ArgumentList&& arguments) override;
  absl::StatusOr<ObjectHandle> SubmitOneToActor(const ObjectHandle& actor,
                                                const TemplateHandle& method,
                                                ArgumentList&& arguments) override;
  absl::StatusOr<ObjectHandle> GetActor(std::string_view name, std::string_view name_space,
                                        proto::TaskTemplate* creation) override;
  absl::Status Kill(const ObjectHandle& actor, bool no_restart) override;
  absl::Status ExitActor() override;
  absl::StatusOr<ObjectHandle> OwnActor() override;
  absl::StatusOr<PlacementGroupId> CreateGroup(proto::GroupRequest request) override;
  absl::Status RemoveGroup(PlacementGroupId group) override;
  absl::StatusOr<proto::GroupState> WaitGroup(PlacementGroupId group, Nanos deadline) override;
  absl::StatusOr<bool> KeyPut(std::string_view name_space, std::string_view key,
                              std::string_view value, bool overwrite, KeyLife life,
                              Nanos deadline) override;
  absl::StatusOr<bool> KeyOwn(std::string_view name_space, std::span<const std::string> keys,
                              Nanos deadline) override;
  absl::StatusOr<std::vector<std::optional<std::string>>> KeysGet(std::string_view name_space,
                                                                  std::span<const std::string> keys,
                                                                  Nanos deadline) override;
  absl::StatusOr<std::optional<std::string>> KeyGet(std::string_view name_space,
                                                    std::string_view key, Nanos deadline) override;
  absl::StatusOr<bool> KeyDelete(std::string_view name_space, std::string_view key,
                                 Nanos deadline) override;
  absl::StatusOr<std::vector<std::string>> KeyList(std::string_view name_space,
                                                   std::string_view prefix,
                                                   Nanos deadline) override;
  absl::StatusOr<proto::StateAnswer> Query(proto::StateQuery query, Nanos deadline) override;
  ProcessId self() const override { return self_; }
  JobNumber job() const override { return core_->job(); }
  const std::string& name_space() const override { return core_->dispatch.job().name_space; }
  std::vector<uint32_t> gpu_ids() const override;
  proto::LeaseSpec current_lease() const override;
  TaskId current_task() const override;
  ActorId current_actor() const override;
  void SetCurrentTask(TaskId task) override;

 private:
  // The lock, and what must follow a transaction: calls that ended inside it, wake-ups outside it.
  class Lock {
   public:
    explicit Lock(const RuntimeImpl& runtime);
    ~Lock();
    void Unlock();  // Runs what follows.
    void Relock();
    void Breathe() {  // Runs what follows, and goes on.
      Unlock();
      Relock();
    }
    std::unique_lock<std::mutex>& native() { return lock_; }

   private:
    RuntimeImpl& runtime_;
    std::unique_lock<std::mutex> lock_;
    const RuntimeImpl* outer_;
  };

  // A thread that waits while another holds the token. It outlives its thread's wait, so that it
  // can be woken without the lock.
  struct Waiter {
    std::mutex mutex;
    std::condition_variable changed;
    bool woken = false;  // Guarded by `mutex`; what follows by the runtime's lock.
    absl::FunctionRef<bool()>* done = nullptr;
    bool finished = false;  // `done` has said so.
    bool drives = false;    // The token is its own.
    void Wake();
    void Sleep(Nanos timeout);
  };

  // runtime_drive.cc. `done` is asked under the lock after each change, on any thread, and not
  // again once it has said yes.
  absl::Status DriveUntil(Lock& lock, Nanos deadline, absl::FunctionRef<bool()> done,
                          WaitsFor waits_for = WaitsFor::kOthers);
  bool DriveOnce(Lock& lock, Nanos now, Nanos deadline);
  bool PollRings();
  bool Spin(Lock& lock, Nanos begun, Nanos deadline);
  void YieldLock(Lock& lock);
  void ServeWaiters();
  void Recheck();
  void LeaveToken();
  bool WaitBeside(Lock& lock, absl::FunctionRef<bool()> done, Nanos timeout, bool* drives);
  void LeaveBell();
  void BackgroundLoop();
  void TickIfDue();
  void PublishMetrics();
  void CheckRaylet();
  void WakeWaiters();
  void FinishEnded();
  void EndRaylet(const std::string& why);
  void Leave();

  // runtime_frames.cc
  void OnFrame(ProcessId from, const Frame& frame) override;
  void OnMalformed(ProcessId from) override;
  void SayNotice(const Frame& frame);
  bool KeepSpareDescriptor();
  void TakeNewRings();
  // FrameHost
  void OnGroupsChanged() override { StartGroupThreads(); }
  void OnRunningCancelled(TaskId task) override;
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

  // runtime_objects.cc
  absl::StatusOr<MutableBuffer> CreateNamed(Lock& lock, ObjectSpec spec, Nanos deadline,
                                            std::span<const ObjectHandle> nested);
  absl::StatusOr<ObjectHandle> PutInStore(std::string_view bytes,
                                          std::span<const ObjectHandle> nested);

  // runtime_arguments.cc
  absl::Status MoveLargeArguments(ArgumentList* arguments);
  absl::StatusOr<ArgumentList> ValuesOf(const ArgumentList& arguments);

  // runtime_calls.cc
  absl::Status WaitForRoom(Lock& lock, absl::FunctionRef<bool()> has_room, const char* what);
  absl::Status CheckRoom(Lock& lock);
  absl::Status CheckRoom(Lock& lock, const ActorClient& client);
  absl::Status WaitForCredits(Lock& lock, const ActorClient& client);
  absl::StatusOr<proto::GcsReply> AskGcs(proto::GcsRequest request, Nanos deadline);

  // runtime_actors.cc
  absl::Status EndActor(ActorId id, bool detached, bool no_restart, const char* words);
  absl::StatusOr<ObjectHandle> TakeName(Lock& lock, const proto::GcsRequest& registration);
  absl::StatusOr<ObjectHandle> HandleIfThere(Lock& lock, const proto::ActorInfo& actor,
                                             Nanos deadline);
  absl::StatusOr<ObjectHandle> CreateDetached(const TemplateHandle& creation,
                                              const ArgumentList& given,
                                              const std::string& name_space);

  // runtime_loop.cc
  bool RunsLoop() const;
  bool CollectCalls(std::vector<std::shared_ptr<Execution>>* calls);
  void WatchDescriptors(Lock& lock);
  void HelpLoop();

  // runtime_worker.cc
  void StartGroupThreads();
  void StartGroupThread(ConcurrencyGroup& group);
  void GroupLoop(ConcurrencyGroup& group);
  void RunCall(Lock& lock, std::shared_ptr<CallExecution> call);
  absl::Status TakeArguments(Lock& lock, const std::shared_ptr<CallExecution>& call);
  bool RunsUserCode() const;
  static void SetCancelFlag(const std::atomic<bool>* flag);
  bool Cancelled() const;                // The call that this thread runs.
  static void SetHold(uint64_t ticket);  // Of that call (ArgumentHolds); 0: none.
  static uint64_t Hold();

  MonotonicClock clock_;
  RuntimeOptions options_;
  const BackPressure limits_;
  Attached attached_;
  const ProcessId self_;
  std::shared_ptr<Mapping> segment_;
  // Closed while the descriptor of a ring is received and mapped: user code that has all others
  // open would else never get the ring, and its calls would wait for ever.
  UniqueFd spare_descriptor_;
  NewRings new_rings_;

  mutable std::mutex mutex_;
  std::atomic<int> lock_seekers_{0};         // Threads that found it taken.
  std::atomic<uint32_t> lock_handovers_{0};  // Times that one of them got it.
  Nanos yielded_at_ = 0;                     // The holder of the token gave it to one of them.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<ProcessCore> core_;
  absl::btree_map<uint64_t, proto::StateAnswer> state_answers_;
  uint64_t next_query_ = 1;
  CallbackRunner callbacks_{"sheaf-callbacks"};  // Of OnReady.
  CallbackRunner cancels_{"sheaf-cancels"};      // TaskHandler::Cancel.
  LogPrinter printer_;

  uint64_t sleeps_ = 0;            // On the bell.
  bool background_frees_ = false;  // The background thread goes on freeing.

  bool driving_ = false;                          // The token.
  bool look_again_ = false;                       // For its holder: not only frames matter.
  std::vector<std::shared_ptr<Waiter>> waiters_;  // Not finished, longest first.
  std::vector<std::shared_ptr<Waiter>> to_wake_;  // When the lock is free.
  Nanos next_tick_ = 0;
  Nanos last_raylet_check_ = 0;
  // Vain spins in a row; from kSpinMisses on, waits sleep at once (DriveOnce). A new process begins
  // with that: it sleeps until frames come fast.
  static constexpr int kSpinMisses = 8;
  int spin_misses_ = kSpinMisses;
  Nanos no_spin_before_ = 0;  // Others want the cores.
  bool stopping_ = false;
  bool stopped_ = false;
  int inside_ = 0;  // Locks, whether taken just now or not: threads that will touch this again.
  bool leaving_ = false;            // The raylet told this worker to end.
  std::condition_variable leaves_;  // Wakes a main thread that has nothing else to do.
  bool raylet_dead_ = false;
  std::string raylet_death_;
  std::atomic<bool> background_ticks_{false};  // The background thread looks each millisecond.
  std::thread background_;
  std::vector<std::thread> group_threads_;
  LoopWatch loop_watch_;
  std::unique_ptr<LoopCalls> loop_calls_;
  std::condition_variable helper_called_;  // By whoever gives loop_calls_ something to wait for.
};

}  // namespace sheaf
