// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One process's place in a cluster: what the C++ API and the Python bindings stand on.
// Language-neutral: values are bytes.
//
// Thread-safe unless said otherwise. No call runs user code, and no call that takes a deadline
// outlives it by more than a scheduling delay. Blocking calls return kCancelled when `interrupted`
// (see RuntimeOptions) says so. Calls that need the node return kAborted when its raylet has ended,
// or the runtime is being shut down.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/trace/trace_context.h"
#include "object_store/buffer.h"
#include "proto/raylet.pb.h"
#include "proto/worker.pb.h"
#include "worker/owner/inline_bytes.h"
#include "worker/owner/object_handle.h"

namespace sheaf {

struct NestedReference;  // worker/wire.h

// The bytes of a ready object, pinned while `keep` or the handle lives, or its error.
struct ObjectView {
  std::string_view bytes;
  Buffer keep;                   // Holds arena memory; empty for values inside the process.
  ObjectHandle handle;           // Holds values inside the process.
  const Error* error = nullptr;  // Not null: there is no value. Valid while `handle` lives.
  // The references inside the value, so that they outlive its reading.
  std::vector<ObjectHandle> nested;
};

// `bytes` (> 0) of the value of `object`, from `offset` on (docs/design/parts.md).
struct ObjectPart {
  ObjectHandle object;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct ObjectPlaces {
  bool ready = false;             // Else nothing else is known.
  std::vector<NodeNumber> nodes;  // With a copy, in memory or on disk; of an error none.
  uint64_t size = 0;              // Bytes of the value.
  bool in_reach = false;          // This process can read it without waiting.
};

// TaskTemplate::max_retries of a method that names no number of its own: the actor's
// max_task_retries counts.
inline constexpr int32_t kRetriesOfActor = -2;

// A function or method with its options; made once, used by many calls.
using TemplateHandle = std::shared_ptr<const struct TemplateRecord>;

// The arguments of one call, in order.
class ArgumentList {
 public:
  // A value, serialised. `nested`: the references inside it, kept alive until the call has ended.
  void AddValue(std::string_view bytes, std::span<const ObjectHandle> nested = {});
  // Room for a value of `size` bytes, to be filled before the next call of any method.
  char* AddValueInPlace(size_t size);
  // The object's value, once it is there.
  void AddReference(const ObjectHandle& object);
  size_t count() const { return count_; }
  size_t bytes() const { return encoded_.size(); }
  // The references inside the values.
  std::span<const ObjectHandle> nested() const { return nested_; }

 private:
  friend class ArgumentCodec;
  struct Reference {
    ObjectHandle object;
    uint32_t position;    // Of its ArgumentHead in `encoded_`.
    bool packed = false;  // The object is several arguments (ArgumentKind::kPack).
  };
  struct Holder {  // A value with references inside.
    uint32_t position;
    uint32_t nested;
  };
  InlineBytes encoded_;  // worker/wire.h: ArgumentHead and bytes, each 8-byte aligned.
  std::vector<Reference> references_;
  std::vector<ObjectHandle> nested_;  // Of all values, in order.
  std::vector<Holder> holders_;
  uint32_t count_ = 0;
};

// One running call, in a worker. Filled by the language's TaskHandler.
class Execution {
 public:
  virtual ~Execution() = default;
  virtual TaskId task() const = 0;
  virtual ActorId actor() const = 0;  // Nil outside actors.
  virtual const proto::TaskTemplate& spec() const = 0;
  virtual std::string_view name() const = 0;  // For people.
  virtual uint32_t attempt() const = 0;       // From 0.
  // What calls that it makes are told. Its trace, if it is in one, has the span that all it does is
  // below: its own, where its node exports the spans of calls, else its caller's.
  virtual CallOrigin origin() const = 0;
  virtual size_t argument_count() const = 0;
  // Never an error: such calls are not pushed.
  virtual const ObjectView& argument(size_t index) const = 0;
  // The arguments were read and are not looked at again. The call holds nothing of the store any
  // more for them; views of them that were copied still do.
  virtual void DropArguments() = 0;
  // Small values are copied, large ones go to the store. kResourceExhausted: the store is full.
  virtual absl::Status Return(size_t index, std::string_view bytes,
                              std::span<const ObjectHandle> nested = {}) = 0;
  // A large value built in place and published without a copy: CreateReturn, fill, ReturnBuffer
  // with the same references.
  virtual absl::StatusOr<MutableBuffer> CreateReturn(size_t index, size_t size,
                                                     std::span<const ObjectHandle> nested = {}) = 0;
  virtual absl::Status ReturnBuffer(size_t index, MutableBuffer buffer,
                                    std::span<const ObjectHandle> nested = {}) = 0;
  // The call failed. `retriable`: user error that the template's retry rule covers.
  virtual void Fail(Error error, bool retriable) = 0;
  // Its results from `first` on are the error; those before it stay.
  virtual void FailFrom(size_t first, Error error) = 0;
  // One item of a streaming generator. Waits while too many are unconsumed. kCancelled: no more
  // are wanted, as the consumer is gone, cancelled, or has the others from an earlier run.
  virtual absl::Status Yield(std::string_view bytes, std::span<const ObjectHandle> nested = {}) = 0;
  virtual bool cancelled() const = 0;  // Somebody asked for it; thread-safe, cheap.
};

// The language's side of a worker. Called without locks, on the thread that the actor's concurrency
// rules name.
class TaskHandler {
 public:
  virtual ~TaskHandler() = default;
  // Runs the call to its end, or starts it and keeps `execution` for later: the call ends when the
  // last copy goes.
  virtual void Execute(std::shared_ptr<Execution> execution) = 0;
  // A running call shall stop, if its language can. Repeated while the call runs, a few times a
  // second; on a thread for this, without locks.
  virtual void Cancel(TaskId task) { (void)task; }
  // The worker leaves: what users have for its end runs now, while it can still make calls. On the
  // thread of RunWorker, without locks; other threads may be inside calls.
  virtual void Leave() {}
  // Whether the waits of an actor's method that is cancelled end, those of async actors aside.
  virtual bool ends_waits_of_methods() const { return true; }
  // Whether async actors run on an event loop of the language, which takes its calls itself
  // (Runtime::TakeCalls). Execute then gets their creation alone.
  virtual bool has_event_loop() const { return false; }
};

struct RuntimeOptions {
  std::string socket_path;  // Of the node's raylet.
  bool driver = true;
  std::string worker_token;  // Workers: from the environment.
  proto::JobStart job;       // Drivers. argv, working_dir and environ are filled in when empty.
  uint64_t value_bytes = 256 << 20;  // Values in this process's own memory; see Settings.
  double leak_age = 600;             // Seconds; as in Settings.
  bool events = true;                // As in Settings.
  TaskHandler* handler = nullptr;    // Workers; outlives the runtime.
  // Workers: RunWorker returns when no thread is inside a call any more. The raylet kills a worker
  // that takes long; one without a raylet ends in there.
  bool awaits_calls = false;
  std::function<bool()> interrupted;  // Asked at least each 100 ms by blocking calls; true: give
                                      // up. Called without locks.
  std::function<void(const proto::LogLines&)> on_log_lines;  // Drivers. On a thread for this.
  // Called once, before anything else runs: the bytes of the process's segment
  // (shm/process_segment.h), for the parts that the language writes.
  std::function<void(std::shared_ptr<std::byte> segment)> on_segment;
  // What the threads of this process do, in the language's frames; `threads` and `words` are filled.
  // On a thread for this, for half a second at most. Empty: the language tells nothing.
  std::function<proto::ProcessStacks()> tell_stacks;
};

// While one lives on a thread, a submission there waits for room with a bound, in a driver too:
// what it waits for may be for this thread to do, as it runs an event loop.
class WithBoundedWaits {
 public:
  WithBoundedWaits();
  ~WithBoundedWaits();
  WithBoundedWaits(const WithBoundedWaits&) = delete;
  WithBoundedWaits& operator=(const WithBoundedWaits&) = delete;

 private:
  const bool outer_;
};

// While one lives on a thread, a submission there that would wait for room returns kUnavailable
// instead, with its arguments as they were: for who holds a lock that others need (the GIL).
class WithoutWaiting {
 public:
  WithoutWaiting();
  ~WithoutWaiting();
  static bool IsOn();  // In this thread.
  WithoutWaiting(const WithoutWaiting&) = delete;
  WithoutWaiting& operator=(const WithoutWaiting&) = delete;

 private:
  const bool outer_;
};

class Runtime {
 public:
  // Joins the node. kUnavailable: no node listens there; kFailedPrecondition: another version, with
  // both named.
  static absl::StatusOr<std::unique_ptr<Runtime>> Attach(RuntimeOptions options);
  // Threads must not be inside a call any more: Stop sees to that.
  virtual ~Runtime() = default;
  // Leaves the node. Calls that wait on other threads end with kAborted, as do later ones. False:
  // after `patience` some thread is inside a call still; the runtime must then never be destroyed.
  virtual bool Stop(Nanos patience) = 0;
  // Drivers, before Stop: what workers of this node have printed by now is on its way to
  // on_log_lines when this returns, after a fraction of a second at most.
  void AwaitOutput();
  // Workers: runs calls until the raylet or the job ends this process; returns the exit status.
  virtual int RunWorker() = 0;
  // Event loops of async actors, before their first TakeCalls: `descriptor`, which stays open, is
  // readable while the loop has something to do besides calls. kResourceExhausted: the process has
  // no descriptor left to watch it with.
  virtual absl::Status WatchLoop(int descriptor) = 0;
  // Event loops, on their thread: waits until there are calls that shall start, which it appends,
  // until the loop has something else to do, or until `deadline`; 0: does not wait. False: the
  // node has ended, and no more calls come.
  virtual bool TakeCalls(Nanos deadline, std::vector<std::shared_ptr<Execution>>* calls) = 0;

  // Objects.
  virtual absl::StatusOr<ObjectHandle> Put(std::string_view bytes,
                                           std::span<const ObjectHandle> nested = {}) = 0;
  // Memory of the store to build a value of `size` bytes in; waits for room until `deadline`, or
  // until none came for 30 s (a slow disk may go on for others). kResourceExhausted: none came.
  // `nested`: the references that the value will contain; Seal gets the same.
  virtual absl::StatusOr<MutableBuffer> Create(size_t size, Nanos deadline,
                                               std::span<const ObjectHandle> nested = {}) = 0;
  virtual absl::StatusOr<ObjectHandle> Seal(MutableBuffer buffer,
                                            std::span<const ObjectHandle> nested = {}) = 0;
  // Waits until all are ready; `views` is resized to match. kDeadlineExceeded: not all were (the
  // message says what the first waits for). Errors of objects are in their views, not in the
  // status.
  virtual absl::Status Get(std::span<const ObjectHandle> objects, Nanos deadline,
                           std::vector<ObjectView>* views) = 0;
  // The same of parts of objects. Of those in reach nothing is copied; of others the parts alone are
  // brought here. kInvalidArgument: one is empty.
  virtual absl::Status GetParts(std::span<const ObjectPart> parts, Nanos deadline,
                                std::vector<ObjectView>* views) = 0;
  // Where the values of objects lie, as far as this process knows; nothing is waited for or brought.
  virtual std::vector<ObjectPlaces> PlacesOf(std::span<const ObjectHandle> objects) = 0;
  // Until `num_returns` are ready, or `deadline`: the indices of the first ready ones, ascending,
  // at most `num_returns`. `bring`: values that lie on other nodes or on disk are fetched, some at
  // a time, and are ready when they have come; what has come may make way for others later.
  // kDeadlineExceeded, without a deadline only: all the others are with nodes that nobody hears.
  virtual absl::StatusOr<std::vector<size_t>> Wait(std::span<const ObjectHandle> objects,
                                                   size_t num_returns, Nanos deadline,
                                                   bool bring) = 0;
  // Whether a Get need wait for nothing; if it lies elsewhere it is fetched from now on.
  virtual bool IsReady(const ObjectHandle& object) = 0;
  // Calls `callback` once when `object` is ready and a Get of it need wait for nothing; what lies
  // elsewhere is fetched. In the caller if that is so now, else on a thread for callbacks, where it
  // may take its time and call the runtime. Also when the node has ended or Stop begins, which a Get
  // then says; never later.
  virtual void OnReady(const ObjectHandle& object, std::function<void()> callback) = 0;
  // The same for what only wakes somebody: `signal` is called under the runtime's lock, on any
  // thread, so it neither waits nor calls the runtime.
  virtual void SignalReady(const ObjectHandle& object, std::function<void()> signal) = 0;
  // The handle for an id found inside a value that this process got. kNotFound: it got no such
  // reference. `borrows`: it came in another way, from somebody who called Outgoing and holds the
  // object meanwhile.
  virtual absl::StatusOr<ObjectHandle> HandleFor(ObjectId id, bool borrows = false) = 0;
  // What travels of references that leave this process outside of calls and values: their values
  // are in the store from here on, or will be. The caller holds the handles for as long as somebody
  // may come with one.
  virtual std::vector<NestedReference> Outgoing(std::span<const ObjectHandle> objects) = 0;

  // Tasks. `spec.number` is assigned here. kInvalidArgument: a part of it is too large to be sent
  // to all who must know it (worker/limits.h).
  virtual absl::StatusOr<TemplateHandle> MakeTemplate(proto::TaskTemplate spec) = 0;
  // One handle per return value; for streaming templates one handle, of the stream (NextItem).
  // kResourceExhausted: too much is queued, and stayed so for the back-pressure deadline, or the
  // store has no room for what is too large for a message. kInvalidArgument: more arguments or
  // references than a call can have (worker/limits.h).
  virtual absl::StatusOr<std::vector<ObjectHandle>> Submit(const TemplateHandle& task,
                                                           ArgumentList&& arguments) = 0;
  // The same for templates with one return value, without a vector.
  virtual absl::StatusOr<ObjectHandle> SubmitOne(const TemplateHandle& task,
                                                 ArgumentList&& arguments) = 0;
  // The next item of a stream, waiting until `deadline`. nullopt: the generator ended. A failure is
  // an item with an error, then the end.
  virtual absl::StatusOr<std::optional<ObjectHandle>> NextItem(const ObjectHandle& stream,
                                                               Nanos deadline) = 0;
  virtual absl::Status Cancel(const ObjectHandle& object, bool force, bool recursive) = 0;

  // Actors. A handle of an actor is the handle of its creation object: ready when the constructor
  // has run, and the actor ends when the last handle anywhere is dropped (unless detached).
  // ActorOf(handle) names it. kAlreadyExists: the name is taken. kUnavailable, kResourceExhausted:
  // the GCS could not make it durable.
  virtual absl::StatusOr<ObjectHandle> CreateActor(const TemplateHandle& creation,
                                                   ArgumentList arguments) = 0;
  virtual absl::StatusOr<std::vector<ObjectHandle>> SubmitToActor(const ObjectHandle& actor,
                                                                  const TemplateHandle& method,
                                                                  ArgumentList&& arguments) = 0;
  virtual absl::StatusOr<ObjectHandle> SubmitOneToActor(const ObjectHandle& actor,
                                                        const TemplateHandle& method,
                                                        ArgumentList&& arguments) = 0;
  // kNotFound: no such name. Empty name_space: the job's. `creation` (may be null): the creation
  // template, for its `extra`.
  virtual absl::StatusOr<ObjectHandle> GetActor(std::string_view name, std::string_view name_space,
                                                proto::TaskTemplate* creation) = 0;
  virtual absl::Status Kill(const ObjectHandle& actor, bool no_restart) = 0;
  // In an actor's process: ends the actor for good. The caller has answered the running call; those
  // that have not begun are refused from now on. Others that run are answered first, within 30 s; then
  // `before` is called, without locks; then the calls that this process has made come to their ends. `patience`
  // is for all of that; what cannot begin is not waited for as long. kFailedPrecondition: this
  // process is no actor.
  virtual absl::Status ExitActor(Nanos patience, absl::FunctionRef<void()> before) = 0;
  // In an actor's process that is about to end with an error: no call begins here any more, and those
  // that have not are the next process's, if there will be one. `before` is called, without locks;
  // then the calls that this process has made have `patience`.
  virtual void EndCalls(Nanos patience, absl::FunctionRef<void()> before) = 0;

  // Placement groups; the state is waited for with WaitGroup.
  virtual absl::StatusOr<PlacementGroupId> CreateGroup(proto::GroupRequest request) = 0;
  virtual absl::Status RemoveGroup(PlacementGroupId group) = 0;
  virtual absl::StatusOr<proto::GroupState> WaitGroup(PlacementGroupId group, Nanos deadline) = 0;

  // Key-value pairs in the GCS (functions and packages of dynamic languages live there too).
  enum class KeyLife {
    kUntilDeleted,
    kOfJob,  // Until the last of the jobs that put it, or own it, is over and left no detached
             // actor.
  };
  // True: it was not there. With false and not `overwrite` the value stays as it was.
  virtual absl::StatusOr<bool> KeyPut(std::string_view name_space, std::string_view key,
                                      std::string_view value, bool overwrite, KeyLife life,
                                      Nanos deadline) = 0;
  // Lets this process's job own keys beside the jobs that do. False: one is missing, nothing
  // changed.
  virtual absl::StatusOr<bool> KeyOwn(std::string_view name_space,
                                      std::span<const std::string> keys, Nanos deadline) = 0;
  // The values of many keys in their order, by one question; nullopt: there is none.
  virtual absl::StatusOr<std::vector<std::optional<std::string>>> KeysGet(
      std::string_view name_space, std::span<const std::string> keys, Nanos deadline) = 0;
  virtual absl::StatusOr<std::optional<std::string>> KeyGet(std::string_view name_space,
                                                            std::string_view key,
                                                            Nanos deadline) = 0;
  virtual absl::StatusOr<bool> KeyDelete(std::string_view name_space, std::string_view key,
                                         Nanos deadline) = 0;
  virtual absl::StatusOr<std::vector<std::string>> KeyList(std::string_view name_space,
                                                           std::string_view prefix,
                                                           Nanos deadline) = 0;

  // What the node knows: nodes, actors, tasks, ... kDeadlineExceeded: it did not answer.
  virtual absl::StatusOr<proto::StateAnswer> Query(proto::StateQuery query, Nanos deadline) = 0;

  // This process.
  virtual ProcessId self() const = 0;
  virtual JobNumber job() const = 0;
  virtual const std::string& name_space() const = 0;
  virtual std::vector<uint32_t> gpu_ids() const = 0;  // Of the current lease.
  // Resources and strategy of the running task; empty in drivers.
  virtual proto::LeaseSpec current_lease() const = 0;
  // Of the call that the calling thread runs, until the thread runs another.
  virtual const CallOrigin& current_origin() const = 0;
  virtual ActorId current_actor() const = 0;
  // The thread now runs (its task is nil: no longer runs) this call: tasks it submits are its children
  // (recursive cancel), and in its trace.
  virtual void SetCurrentOrigin(const CallOrigin& origin) = 0;
  // In an actor's process: a handle of the actor itself. kFailedPrecondition: this is none.
  virtual absl::StatusOr<ObjectHandle> OwnActor() = 0;
};

inline ActorId ActorOf(const ObjectHandle& handle) {
  const ObjectId id = handle.id();
  return {id.maker_bits, id.sequence_bits & ~uint64_t{0xffff}};
}

// Frees the bytes of objects that this process owns, and has them made again when they are read. One
// status for each, as of GiveUp in worker/owner/task_table.h.
std::vector<absl::Status> GiveUp(Runtime& runtime, std::span<const ObjectHandle> objects,
                                 bool though_used);

}  // namespace sheaf
