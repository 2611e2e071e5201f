// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Runtime of a real process: what waits of a user's operations, over the process's core
// (core/process_core.h) and the driver (driver.h), whose lock guards all of it.
//
//   runtime_attach.cc   joining a node, what is looked after meanwhile, and leaving it
//   runtime_frames.cc   frames that concern the process itself; others: core/frame_dispatch.h
//   runtime_objects.cc  put, create, seal, get, wait
//   runtime_calls.cc    calls of tasks and actors, streams, cancellation
//   runtime_actors.cc   actors: made, found by name, ended
//   runtime_arguments.cc  what is too large for the frame of a call
//   runtime_node.cc     placement groups, key-value, questions about the cluster's state
//   runtime_worker.cc   running calls
//   runtime_loop.cc     event loops of async actors
//
// An event loop with nothing to do waits for calls as all threads wait, while the main thread
// watches its descriptors.
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
#include "base/memory/heap.h"
#include "base/unique_fd.h"
#include "shm/attach_client.h"
#include "shm/mailbox.h"
#include "worker/callback_runner.h"
#include "worker/core/loop_calls.h"
#include "worker/core/process_core.h"
#include "worker/departures.h"
#include "worker/driver.h"
#include "worker/loop_watch.h"
#include "worker/new_rings.h"
#include "worker/printing/log_printer.h"
#include "worker/printing/waiting_notices.h"
#include "worker/ready_hooks.h"
#include "worker/runtime.h"
#include "worker/stack_answers.h"

namespace sheaf {

class RuntimeImpl final : public Runtime,
                          public FrameHandler,
                          public FrameHost,
                          public ExecutionHost,
                          public Driver::Host {
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
  absl::Status GetParts(std::span<const ObjectPart> parts, Nanos deadline,
                        std::vector<ObjectView>* views) override;
  std::vector<ObjectPlaces> PlacesOf(std::span<const ObjectHandle> objects) override;
  absl::StatusOr<std::vector<size_t>> Wait(std::span<const ObjectHandle> objects,
                                           size_t num_returns, Nanos deadline, bool bring) override;
  bool IsReady(const ObjectHandle& object) override;
  void OnReady(const ObjectHandle& object, std::function<void()> callback) override;
  void SignalReady(const ObjectHandle& object, std::function<void()> signal) override;
  absl::StatusOr<ObjectHandle> HandleFor(ObjectId id, bool borrows) override;
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
  absl::Status ExitActor(Nanos patience, absl::FunctionRef<void()> before) override;
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
  const CallOrigin& current_origin() const override;
  ActorId current_actor() const override;
  void SetCurrentOrigin(const CallOrigin& origin) override;

 private:
  using Lock = Driver::Lock;
  friend bool GetBriefly(Runtime&, const ObjectHandle&, ObjectView*);
  friend std::vector<absl::Status> GiveUp(Runtime&, std::span<const ObjectHandle>, bool);

  // runtime_attach.cc
  void OnTick() override;  // Driver::Host
  void PublishMetrics();
  void CheckRaylet();
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
  void EndCalls(Nanos patience, absl::FunctionRef<void()> before) override;
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

  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Driver> driver_;  // Goes after the core, whose calls end under its lock.
  std::unique_ptr<ProcessCore> core_;
  std::unique_ptr<Departures> departures_;
  absl::btree_map<uint64_t, proto::StateAnswer> state_answers_;
  uint64_t next_query_ = 1;
  ReadyHooks ready_hooks_;
  CallbackRunner callbacks_{"sheaf-callbacks"};  // Of OnReady.
  CallbackRunner cancels_{"sheaf-cancels"};      // TaskHandler::Cancel.
  LogPrinter printer_;
  WaitingNotices notices_{[this](std::string words) {
    proto::LogLines lines;
    lines.set_name("sheaf");
    lines.set_os_pid(getpid());
    lines.set_error_stream(true);
    lines.add_lines(std::move(words));
    printer_.Print(std::move(lines));
  }};
  StackAnswers stacks_;
  IdleHeap heap_;

  bool stopped_ = false;
  bool leaving_ = false;            // The raylet told this worker to end.
  Nanos leaves_by_ = 0;             // If it has time for what its calls still do.
  bool calls_end_ = false;          // No thread takes a call any more.
  bool actor_leaves_ = false;       // It has called ExitActor.
  size_t calling_threads_ = 0;      // In GroupLoop.
  std::condition_variable leaves_;  // Wakes a main thread that has nothing else to do.
  Nanos raylet_seen_at_ = 0;        // When the raylet was seen alive last.
  std::thread background_;
  std::vector<std::thread> group_threads_;
  LoopWatch loop_watch_;
  std::unique_ptr<LoopCalls> loop_calls_;
  std::condition_variable helper_called_;  // By whoever gives loop_calls_ something to wait for.
};

// A new object in the store, whatever its size. Errors: as of Runtime::Create.
absl::StatusOr<ObjectHandle> PutInStore(Runtime& runtime, std::string_view bytes,
                                        std::span<const ObjectHandle> nested);

}  // namespace sheaf
