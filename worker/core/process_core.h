// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a driver or worker knows and does, without its threads: the parts below, wired to each other
// and to the store of the node, and those steps of a user's operations that never wait. Who waits
// stands around it: the runtime, whose one lock guards all of this, and the simulator's process,
// which runs it in one thread.
//
//   process_core.cc       the parts and their wiring; what follows a turn
//   process_core_steps.cc values, calls and results
//   actor_directory.h     what the GCS knows of actors
//   argument_fetch.h      the arguments of a call that starts
//   gathering.h           the values of many objects
//   object_creation.h     room in the store
//   part_fetches.h        parts of objects that lie elsewhere
//   part_gathering.h      parts of many objects
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "metrics/counter.h"
#include "object_store/store_client.h"
#include "shm/segment.h"
#include "telemetry/event_writer.h"
#include "worker/core/actor_directory.h"
#include "worker/core/blocked_calls.h"
#include "worker/core/frame_dispatch.h"
#include "worker/core/gcs_calls.h"
#include "worker/core/part_fetches.h"
#include "worker/core/placement_groups.h"
#include "worker/core/relay_transport.h"
#include "worker/core/sequence_times.h"
#include "worker/executor/task_executor.h"
#include "worker/owner_state.h"
#include "worker/runtime.h"

namespace sheaf {

// Puts and gets, for the metrics.
struct ObjectCounts {
  uint64_t puts_private = 0, puts_store = 0, put_bytes = 0, gets_private = 0, gets_store = 0;
};

class ProcessCore final : private LocalStore {
 public:
  // References outlive the core.
  struct Deps {
    ProcessId self;
    Clock& clock;
    Transport& rings;                     // To the others of this node, its raylet and the GCS.
    std::function<void(Lane)> ring_self;  // HandleOwnFrames is wanted soon.
    std::shared_ptr<Mapping> segment;     // This process's own (shm/process_segment.h).
    FrameHost& frames;
    ExecutionHost& executions;
    BackPressure limits;
    bool events = true;  // What its calls did is recorded in the segment.
  };
  // `arena`: the memfd of the node's store. Errors: as of StoreClient::Open.
  static absl::StatusOr<std::unique_ptr<ProcessCore>> Open(Deps deps, UniqueFd arena);
  ~ProcessCore() override;  // Handles and buffers may outlive it.

  const ProcessId self;
  const std::unique_ptr<telemetry::EventWriter> events;  // Null: nothing is recorded.
  RelayTransport transport;                              // The rings, the other nodes, and itself.
  std::unique_ptr<StoreClient> store;  // Never null. Goes after all that frees objects in it.
  OwnerState owner;
  PartFetches parts;
  GcsCalls gcs;
  TaskExecutor executor;
  BlockedCalls blocked_calls;
  ActorDirectory actor_directory;
  PlacementGroups groups;
  FrameDispatch dispatch;

  Channel& raylet() { return rings_.To(RayletOf(self.node)); }
  JobNumber job() const { return dispatch.job().number; }
  const ObjectCounts& object_counts() const { return object_counts_; }

  // --- What belongs to a turn, and what follows it (process_core.cc). ---

  // Frames that this process has sent to itself. They are handled where those of the rings are.
  bool has_own_frames() { return !transport.loopback().empty(); }
  void HandleOwnFrames();
  // After frames were handled: frees some of what was let go, and takes what has come for others.
  // False: values want to be promoted, and there may be room for them (KeepHouse).
  bool AfterFrames();
  // Frees and promotes in slices of `steps`; true: there is more to do.
  bool KeepHouse(size_t steps);
  // Sends what is batched.
  void Flush();
  bool NeedsFlush() const { return owner.references.NeedsFlush() || store->has_unsent(); }
  // What waits for time to pass. Returns when it wants to be called next.
  Nanos Tick();

  // --- Objects (process_core_steps.cc). ---

  // A name for a value of this process.
  ObjectId NextName() { return ObjectId::Make(self, owner.references.NextSequence(), 1); }
  // A value in this process's own memory, copied.
  ObjectHandle PutValue(std::string_view bytes, std::span<const ObjectHandle> nested);
  // What was sealed at `location` under a name of this process becomes an object.
  ObjectHandle AddStored(ObjectId id, const ObjectLocation& location, uint64_t size,
                         std::span<const ObjectHandle> nested);
  // Publishes what ObjectCreation has made: under a name of this process, as a new object; or as
  // the result of a call.
  ObjectHandle SealOwned(MutableBuffer buffer, std::span<const ObjectHandle> nested);
  ObjectLocation Seal(MutableBuffer buffer);
  // False: not ready, or not in this process's reach yet; what brings it is under way.
  bool TryView(const ObjectHandle& object, ObjectView* view);
  // The same of a part of its value. False: the object is not in reach, or is no value, or has no
  // such part; nothing is begun to bring it here.
  bool TryViewPart(const ObjectPart& part, ObjectView* view);
  // At least so long ago it was put, or its call made. 0: it is new, or another process's.
  Nanos AgeOf(ObjectId id) const;
  // From what age on an object that nothing needs but a reference is worth a look.
  void set_leak_age(Nanos age) { leak_age_ = age; }
  Nanos leak_age() const { return leak_age_; }
  // For people.
  std::string WhatItWaitsFor(const ObjectEntry& object) const;
  // The references as they travel; their owners find them from now on.
  std::vector<NestedReference> Outgoing(std::span<const ObjectHandle> nested);

  // --- Calls (process_core_steps.cc). `parent`: the task that makes them; nil in drivers. ---

  TemplateHandle MakeTemplate(proto::TaskTemplate spec);
  TaskRecord* AddTask(const TemplateHandle& spec, ArgumentList* arguments,
                      const CallOrigin& parent);
  static std::vector<ObjectHandle> HandlesOf(const TaskRecord& task);
  std::vector<ObjectHandle> Submit(const TemplateHandle& spec, ArgumentList* arguments,
                                   const CallOrigin& parent);
  ObjectHandle SubmitOne(const TemplateHandle& spec, ArgumentList* arguments,
                         const CallOrigin& parent);
  std::vector<ObjectHandle> SubmitToActor(ActorClient& client, const ObjectHandle& actor,
                                          const TemplateHandle& method, ArgumentList* arguments,
                                          const CallOrigin& parent);
  ObjectHandle SubmitOneToActor(ActorClient& client, const ObjectHandle& actor,
                                const TemplateHandle& method, ArgumentList* arguments,
                                const CallOrigin& parent);

  // --- Calls of others (process_core_steps.cc). ---

  // Its arguments are there, or `fetched` says why not. False: it was failed instead.
  static bool MayStart(CallExecution& call, const absl::Status& fetched);
  // A stream's next item may be sent, or nobody wants it. The channel is looked up each time: it
  // goes with the consumer.
  bool MayYield(const CallExecution& call) {
    return call.IsOver() ||
           (call.HasRoom() && transport.To(call.owner).queued_bytes() < limits_.max_untaken);
  }
  void SendItem(CallExecution& call, std::string item, std::span<const ObjectHandle> nested);
  // A constructor has run and its reply has gone. `from_raylet`: of a detached actor, for which the
  // raylet speaks to the GCS.
  void EndConstruction(const Error& failure, bool from_raylet);

 private:
  explicit ProcessCore(Deps& deps);

  // LocalStore
  void Free(ObjectId id, ObjectLocation location) override { store->Free(id, location); }
  ObjectLocation Promote(ObjectId id, std::string_view bytes,
                         std::span<const ObjectId> nested) override;
  bool Has(const ObjectLocation& location) override { return store->Has(location); }

  void OnLocated(ObjectId id, const absl::StatusOr<ObjectLocation>& location);
  bool PromoteLate();
  void CountPut(uint64_t* puts, uint64_t bytes);
  std::vector<ObjectEntry*> UsesOf(std::span<const ObjectHandle> handles);

  Clock& clock_;
  Transport& rings_;
  const BackPressure limits_;
  SequenceTimes sequence_times_;
  Nanos leak_age_ = 0;
  ObjectCounts object_counts_;
  metrics::Histogram object_bytes_;
  uint64_t promoted_at_ = 0;  // The store's room_version, as values were last promoted late.
};

}  // namespace sheaf
