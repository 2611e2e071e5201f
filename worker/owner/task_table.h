// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The calls that this process has submitted and owns the results of: arguments and their readiness,
// results from replies, failures, lineage. Where a call runs is the business of TaskSubmitter
// (leases) and ActorSubmitter (actors). Pure.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "metrics/counter.h"
#include "telemetry/event_writer.h"
#include "worker/owner/reference_table.h"
#include "worker/owner/slab.h"
#include "worker/owner/stream_state.h"
#include "worker/owner/task_record.h"

namespace sheaf {

// Where the table hands a call whose arguments are ready, or that shall run again.
class TaskDispatcher {
 public:
  virtual ~TaskDispatcher() = default;
  virtual void OnArgumentsReady(TaskRecord& task) = 0;
};

struct TaskCounts {
  uint64_t submitted = 0, finished = 0, failed = 0, retried = 0, cancelled = 0;
};

class TaskTable {
 public:
  TaskTable(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references);

  // A new call with its (pending) results. Its arguments keep one use each of what they refer to.
  // `spec` stays valid while the call exists.
  TaskRecord* Add(const TemplateRecord& spec, InlineBytes arguments,
                  std::unique_ptr<TaskReferences> references, const CallOrigin& parent);
  // Starts to wait for the arguments; the dispatcher is called when they are ready, maybe at once.
  void Start(TaskRecord& task, TaskDispatcher& dispatcher);
  TaskRecord* Find(uint32_t cookie, uint64_t sequence_bits);
  // The unfinished (or lineage) call that makes `object`.
  TaskRecord* MakerOf(ObjectEntry& object) { return object.owned ? object.task : nullptr; }

  // Sends one push: the template first if `peer` lacks it. The call, which is in no list, counts
  // from now on with the values that travel with it.
  void Push(TaskRecord& task, Peer& peer, uint64_t lease, uint64_t push);

  // A reply from `from`. The task is looked up and its results are filled; nullptr: no such call,
  // or of another attempt. The caller (who knows the lists that the task is in) removes it from
  // them first: so two steps.
  struct Reply {
    TaskRecord* task = nullptr;
    const struct TaskReplyHead* head = nullptr;
    std::string_view rest;
  };
  Reply ParseReply(std::string_view body);
  // kRetry: a retriable failure with retries left; the caller runs it again. Else the call is
  // finished and may be freed.
  enum class Outcome { kFinished, kRetry };
  Outcome Finish(const Reply& reply, ProcessId from);
  // Ends a call without a reply: all its unready results get `error`. `known`: its executor has
  // recorded that.
  void Fail(TaskRecord& task, const Error& error, bool known = false);
  // The same, after the death of a worker on `node` that had started it.
  void FailStarted(TaskRecord& task, const Error& error, NodeNumber node);
  // The results that a worker on `node` may have sealed for this attempt, of which nobody heard,
  // go.
  void FreeUnheardOf(const TaskRecord& task, NodeNumber node);
  // A borrowed argument of a call that runs again is to be had from its owner once more.
  void set_want_borrowed(std::function<void(ObjectEntry&)> want) {
    want_borrowed_ = std::move(want);
  }
  // Where the times from submission to result of a sample of all calls go (one in kSampled).
  static constexpr uint64_t kSampled = 64;
  // `events`: where calls are recorded that end without their executor's word; may be null.
  void set_figures(metrics::Histogram tasks, metrics::Histogram calls,
                   telemetry::EventWriter* events) {
    latency_ = {{tasks, calls}};
    events_ = events;
  }
  // Takes one retry, unless results were given up, and prepares the next attempt; false: none left
  // (or cancelled). `unrecorded`: how this attempt ended, if no executor can have recorded that.
  bool TakeRetry(TaskRecord& task, const Error* unrecorded = nullptr);

  // Streams.
  void OnStreamItem(ProcessId from, std::string_view body);
  // Hands out the next item: kPending, kItem (one handle is moved out), kEnd.
  enum class StreamNext { kPending, kItem, kEnd };
  StreamNext NextItem(ObjectEntry& stream, ObjectHandle* item);
  // The items of a call that shall run again are lost with `node`.
  void LoseItemsOn(TaskRecord& task, NodeNumber node);
  // No handle of a running stream is left: its producer may stop.
  void StreamAbandoned(ObjectEntry& stream);

  void OnTransitDone(ProcessId from, std::string_view body);
  // The results of `entry` went: forget its lineage.
  void ReleaseLineage(ObjectEntry& entry);
  // Runs a finished call again to get a lost result back, and before it those that made arguments
  // of which only lineage is left (ObjectEntry::released). Results of it that are not lost stay as
  // they are. False: it may not be repeated, WhyNotAgain says why.
  bool Reconstruct(ObjectEntry& entry, TaskDispatcher& dispatcher);
  // Somebody needs an object of which only lineage is left; it ends in a value or an error.
  void Remake(ObjectEntry& entry, TaskDispatcher& dispatcher);
  // Empty: it has a call that may run again.
  std::string WhyNotAgain(const ObjectEntry& entry) const;
  // Lineage keeps recipes of up to so many bytes in sum; beyond that the oldest go.
  static constexpr uint64_t kLineageBytes = 256 * 1024 * 1024;
  void set_lineage_bound(uint64_t bytes) { lineage_bound_ = bytes; }
  uint64_t lineage_bytes() const { return lineage_bytes_ + references_.lineage_value_bytes(); }

  static const std::string& NameOf(const TaskRecord& task) {
    return task.has_own_name() ? task.references->name : task.spec->spec.name();
  }
  TaskId IdOf(const TaskRecord& task) const { return {self_.packed(), task.sequence_bits}; }
  std::string Describe(const TaskRecord& task) const;  // "count_words (task 0001...)"
  Error Cancelled(const TaskRecord& task) const;
  const TaskCounts& task_counts() const { return counts_[0]; }
  const TaskCounts& call_counts() const { return counts_[1]; }  // Of actor methods.
  uint64_t pushes() const { return pushes_; }
  uint64_t reconstructions() const { return reconstructions_; }
  size_t size() const { return tasks_.size(); }
  template <class Visit>
  void ForEach(Visit visit) {
    tasks_.ForEach(visit);
  }
  Clock& clock() { return clock_; }
  ReferenceTable& references() { return references_; }

 private:
  std::string ResolvedBody(const TaskRecord& task, const struct PushTaskHead& head);
  bool FillReturn(TaskRecord& task, ObjectEntry& entry, class WireReader& in, ProcessId from,
                  std::vector<ObjectEntry*>* nested);
  void Complete(TaskRecord& task);
  void Delete(TaskRecord* task) {
    --task->spec->calls;
    tasks_.Delete(task);
  }
  // Streams (task_streams.cc).
  // What its push says of the items that are there already; nothing if there are none.
  std::string BeginRun(TaskRecord& task, ProcessId producer);
  bool IsAbandoned(const TaskRecord& task) const;
  ObjectEntry* TakeItem(TaskRecord& task, const struct StreamItemHead& head);
  void RefuseItem(ProcessId from, const StreamItemHead& head, WireReader& in, bool stop);
  void StopProducer(const TaskRecord& task);
  std::vector<ObjectId> UnheardItems(const TaskRecord& task) const;
  void EndStream(TaskRecord& task, Error error, uint64_t yielded);
  void CompleteStream(TaskRecord& task);
  void ReleaseOfStream(TaskRecord& task, ObjectEntry& entry);
  bool ReconstructItem(TaskRecord& task, TaskDispatcher& dispatcher,
                       std::vector<ObjectEntry*>* before);
  void ForgetRecipeOfStream(TaskRecord& task);
  void LoseItems(StreamState& stream);
  TaskCounts& CountsOf(const TaskRecord& task) {
    return counts_[task.spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD];
  }
  void KeepArguments(const TaskRecord& task, ProcessId executor);
  void DropArguments(TaskRecord& task);
  static bool MayRunAgain(const TaskRecord& task);
  static uint32_t LineageBytes(const TaskRecord& task);
  void EnterLineage(TaskRecord& task);
  void LeaveLineage(TaskRecord& task);
  void EvictLineage();
  void ForgetRecipe(TaskRecord& task);
  bool RunAgain(ObjectEntry& entry, TaskDispatcher& dispatcher, std::vector<ObjectEntry*>* before);
  void TakeArgumentsBack(TaskRecord& task, std::vector<ObjectEntry*>* before);
  void ConfirmTransit(ProcessId to, uint64_t transit, const std::vector<ObjectEntry*>& nested);

  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  ReferenceTable& references_;
  Slab<TaskRecord> tasks_;
  TaskCounts counts_[2];
  uint64_t pushes_ = 0, reconstructions_ = 0;
  absl::flat_hash_map<uint32_t, Nanos> sampled_;  // By cookie: when the call was submitted.
  std::optional<std::array<metrics::Histogram, 2>> latency_;  // Tasks, calls of actor methods.
  telemetry::EventWriter* events_ = nullptr;
  std::function<void(ObjectEntry&)> want_borrowed_;
  TaskList lineage_;  // Finished calls that may run again, the oldest first.
  uint64_t lineage_bytes_ = 0;
  uint64_t lineage_bound_ = kLineageBytes;
  // The references in a finished call's arguments that its executor still holds, by executor and
  // sequence bits.
  absl::flat_hash_map<ProcessId, absl::btree_map<uint64_t, std::vector<ObjectEntry*>>> kept_;

 public:
  // `process` died: what it kept is let go, streams it produced end with `error`.
  void ProcessDied(ProcessId process);
};

// Frees all copies of an object that this process owns, and keeps the reference: whoever reads it
// next, here or in another process, has it made again by the calls that made it. For caches, which
// keep what there is room for.
//
// It passes from kStore to kPending and `released`, as what only lineage holds does, so all that
// may meet it is known: a get, a call that has it as an argument and a question of a borrower make
// it again (TaskTable::Remake, once for all of them). A borrower or a running call that has its old
// place is told by the store that it is not there, and asks the owner. Who looks at its bytes keeps
// them. The answer to a search that was under way finds it pending, and the search begins anew. The
// death of a node concerns it no more. Its run takes no retry, nor do those of what has to be made
// again for it: nothing failed.
//
// Refused, and nothing changes:
//   kInvalidArgument     another process owns it;
//   kUnavailable         it is being made or used; later it may do. `though_used`: use is no
//                        reason, as a value that holds a reference counts as one; a call that
//                        waits for it waits until it has been made again;
//   kFailedPrecondition  it is in no store, or it or something that it would be made from could not
//                        be made again: it was put or came from an actor, and nobody holds it; its
//                        recipe was evicted; or over kMostRecipes calls would have to be looked at.
// Later it may become so: when recipes pass their bound the oldest go. Then who reads it gets
// kReconstructionFailed.
inline constexpr size_t kMostRecipes = 10'000;
absl::Status GiveUp(TaskTable& tasks, ObjectEntry& entry, bool though_used);

// The text form of an Error inside frames.
std::string EncodeError(const Error& error);
Error DecodeError(std::string_view bytes);
Error CancelledBeforeStart(std::string_view call);
// What a call ends in of which an argument has no value but `error`.
Error ArgumentFailed(const TaskRecord& call, Error error);
// What the calls of an actor end in whose constructor ended in `error`.
Error ConstructorFailed(const std::string& actor, Error error);

}  // namespace sheaf
