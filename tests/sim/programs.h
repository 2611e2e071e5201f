// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the simulated users do: drivers that make random calls, objects, actors, streams, groups and
// keys, and what the calls do in their workers. All of it tells the oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/name_book.h"
#include "tests/sim/process.h"

namespace sheaf::sim {

// What the drivers of one run do, and how often: weights, drawn anew for each seed.
struct Mix {
  uint32_t tasks = 10, chains = 3, objects = 3, large = 1, nested = 3, makes_object = 3, fails = 2,
           crashes = 1, actors = 4, actor_calls = 10, streams = 2, cancels = 2, keys = 2,
           groups = 1, detached = 1, control = 0, commands = 0;
  int threads = 2;             // Of each driver.
  uint32_t burst = 6;          // Calls at once.
  uint64_t one_large_in = 30;  // Results of plain tasks.
  uint32_t longest_run_us = 500;
  uint64_t only_tasks = 0;  // Of each driver: it makes so many tasks, reads them, and ends.

  static Mix Draw(Random& random);
  // Detached actors are called, and nothing waits for the GCS once they are there.
  void FavourDetached() {
    detached = 10;
    actor_calls = 60;
    actors = keys = groups = 0;
  }
  // So much that small stores spill most of it.
  void FavourLarge() {
    large += 10;
    one_large_in = 3;
  }
  // Whatever makes somebody speak to the GCS.
  static Mix OfMethods(Random& random);
  // Commands are submitted, and nothing else.
  static Mix OfJobs(Random& random);
};

class Workload {
 public:
  // `seats`: detached actors that may hold a "seat" at one time.
  Workload(World& world, Mix mix, int seats)
      : world_(world), mix_(mix), seats_(seats), names_(world) {}

  Programs programs();
  // Drivers come to their end.
  void Stop() { stopping_ = true; }
  // `process` has all detached actors ended: nobody else may know them any more.
  void EndDetached(Process& process);

 private:
  struct ActorHandle {
    ObjectHandle handle;
    int max_task_retries = 0;
    bool detached = false;
    ActorId id;
  };
  struct DriverState {
    explicit DriverState(uint64_t seed) : random(seed) {}
    SeededRandom random;
    std::vector<ObjectHandle> results;  // Not read yet.
    std::vector<ActorHandle> actors;
    uint64_t written = 0;  // The last value of its key.
    int threads = 0;       // That run.
  };

  Async<> Driver(Process& process);
  Async<> DriverThread(Process& process, std::shared_ptr<DriverState> shared);
  Async<> Step(Process& process, DriverState& state);
  Async<bool> Read(Process& process, Context context,
                   ObjectHandle object);  // False: the wait was ended.
  Async<bool> ReadPart(Process& process, Context context, ObjectHandle object);
  void Judge(Process& process, ObjectId object, const ObjectView& view);
  Async<> ReadSome(Process& process, DriverState& state, size_t keep);
  Async<> Objects(Process& process, DriverState& state, bool large);
  Async<> MakesObject(Process& process, DriverState& state);
  Async<> Actors(Process& process, DriverState& state);
  Async<> ActorCalls(Process& process, DriverState& state);
  Async<> ActorCallsItself(Process& process, ActorHandle actor);
  Async<> Stream(Process& process, DriverState& state);
  Async<bool> ReadItem(Process& process, const CallArguments& call, TaskId task, uint64_t index,
                       ObjectHandle item);
  Async<> Cancels(Process& process, DriverState& state);
  Async<> Keys(Process& process, DriverState& state);
  Async<> Group(Process& process, DriverState& state);
  Async<> Detached(Process& process, DriverState& state);
  proto::LeaseSpec LeaseOfDetached(Random& random);
  Async<bool> MakeDetached(Process& process, Random& random, const proto::LeaseSpec& lease,
                           int max_restarts, ActorHandle* actor, const std::string& shared = "");
  Async<bool> UseHolder(Process& process, const std::string& name, bool get_if_exists,
                        const std::set<ActorId>& over, const proto::GcsReply& reply,
                        ActorHandle* actor);
  // An actor under a name that others want as well, or whoever has it; now and then its end.
  Async<> SharedName(Process& process, DriverState& state);
  // programs_control.cc: what the others never ask the GCS.
  Async<> Control(Process& process, DriverState& state);
  Async<> Functions(Process& process, DriverState& state);
  Async<> OneKey(Process& process);
  Async<> Lists(Process& process);
  Async<> Command(Process& process, DriverState& state);
  Async<> NamedActor(Process& process);
  Async<> DetachedGroup(Process& process);
  Async<> EndGroup(Process& process, PlacementGroupId group);

  Async<> Execute(Process& process, std::shared_ptr<CallExecution> call, Context context);
  Async<bool> ExecuteNested(Process& process, CallExecution& call, const CallArguments& arguments,
                            Context context);
  Async<> ExecuteStream(Process& process, CallExecution& call, const CallArguments& arguments,
                        Context context);

  struct CallOptions {
    CallArguments arguments;
    int retries = 3;
    int lease = 0;  // Which kind of worker.
    std::vector<ObjectHandle> references;
    std::vector<ObjectHandle> inside;
    PlacementGroupId group;
  };
  ObjectHandle Submit(Process& process, Random& random, const CallOptions& options,
                      const Context& context);
  ObjectHandle CallActor(Process& process, ActorHandle& actor, const CallOptions& options,
                         const Context& context);
  // An actor of the driver, any or this one, once it takes a call; nullptr: it is not there any
  // more.
  Async<ActorHandle*> ChooseActor(Process& process, DriverState& state);
  Async<ActorHandle*> WaitForActor(Process& process, DriverState& state, ActorId id);
  CallArguments NewCall(Op op, Random& random);
  std::string ValueOf(const CallArguments& arguments) {
    return world_.oracle.Value(arguments.id, arguments.size);
  }

  World& world_;
  const Mix mix_;
  int seats_;
  uint64_t next_id_ = 1;
  uint64_t next_name_ = 1;
  uint64_t next_sequence_ = 1;  // Of calls of actors; each caller's grow.
  NameBook names_;
  std::vector<ActorId> detached_;
  std::vector<PlacementGroupId> detached_groups_;
  std::string cluster_id_;
  bool stopping_ = false;
};

}  // namespace sheaf::sim
