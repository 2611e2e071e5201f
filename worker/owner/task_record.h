// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One call, from submission until its results need it no more; and the templates and peers that
// calls share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/trace/trace_context.h"
#include "base/transport.h"
#include "proto/worker.pb.h"
#include "worker/owner/inline_bytes.h"
#include "worker/owner/object_entry.h"
#include "worker/owner/task_target.h"
#include "worker/runtime.h"

namespace sheaf {

struct LeaseKey;  // worker/owner/task_submitter.h

struct TemplateRecord {
  proto::TaskTemplate spec;         // `number` is this process's.
  std::string wire;                 // Serialized.
  mutable LeaseKey* key = nullptr;  // The submitter's, found at the first call.
  mutable uint64_t calls = 0;       // That name it, lineage included: it stays while there are any.
  // A handle of a template whose calls have a name of their own holds these two and no more.
  std::shared_ptr<const TemplateRecord> base;
  std::string name;
};

// A process that calls are pushed to.
struct Peer {
  ProcessId process;
  Channel* channel = nullptr;
  std::vector<bool> templates_sent;  // By number.
};

enum class TaskState : uint8_t {
  kWaitingForArguments,
  kQueued,  // For a lease, or for its actor to live.
  kPushed,
  kDelayed,   // A retry waits out its back-off.
  kFinished,  // Kept as lineage of its results.
};

// What few calls have.
struct TaskReferences {
  struct Argument {
    ObjectEntry* object;  // One use; of lineage, one for lineage.
    uint32_t position;    // Of its ArgumentHead in `arguments`.
    bool packed = false;  // It is several arguments (ArgumentKind::kPack).
  };
  std::vector<Argument> arguments;
  std::vector<ObjectEntry*> nested;  // Inside values; the same.
  // From the second on; one use each while the task is unfinished.
  std::vector<ObjectEntry*> more_returns;
  std::string name;    // Of this call, if not the template's.
  TraceContext trace;  // Of the call that made it, or of its user.
};

struct StreamState;

struct TaskRecord {
  uint32_t cookie = 0;
  uint32_t attempt = 0;
  uint64_t sequence_bits = 0;
  const TemplateRecord* spec = nullptr;
  InlineBytes arguments;  // Heads and values, as they travel; references as placeholders.
  std::unique_ptr<TaskReferences> references;
  std::unique_ptr<StreamState> stream;  // Streaming generators.
  ObjectEntry* first_return = nullptr;  // One use while unfinished.
  TaskRecord* previous = nullptr;       // In the one list that it is in: a queue, or lineage.
  TaskRecord* next = nullptr;
  TaskTarget target;  // Tasks have one while they are kPushed, actors' calls always.
  uint64_t push = 0;
  TaskId parent;             // The task of this process that submitted it, for recursive cancel.
  int32_t retries_left = 0;  // -1: without bound.
  uint32_t bytes = 0;  // What it takes of credits (back_pressure.h); changes outside of lists only.
  uint32_t lineage_bytes = 0;  // Not 0: kept as lineage, which holds its arguments as that alone.
  uint32_t created_ms = 0;     // When it was submitted: wall time, modulo 2^32.
  uint16_t unresolved = 0;     // Arguments that are not ready.
  uint16_t parent_tag = 0;     // base/trace/trace_context.h
  TaskState state = TaskState::kWaitingForArguments;
  bool cancelled : 1 = false;
  bool returned_before : 1 = false;  // Given back unstarted: goes to the front.
  bool sampled : 1 = false;          // Its time from submission to result is measured.
  bool given_up : 1 = false;  // A result was given up, not lost: its next run takes no retry.

  bool has_reference_arguments() const { return references && !references->arguments.empty(); }
  bool is_traced() const { return references && references->trace.is_set(); }
  bool has_own_name() const { return references && !references->name.empty(); }
};
static_assert(sizeof(TaskRecord) <= 168);

// Task lists without allocation.
struct TaskList {
  TaskRecord* first = nullptr;
  TaskRecord* last = nullptr;
  size_t size = 0;
  size_t bytes = 0;  // Of all in it.

  bool empty() const { return first == nullptr; }
  void PushBack(TaskRecord* task) {
    task->previous = last;
    task->next = nullptr;
    (last != nullptr ? last->next : first) = task;
    last = task;
    ++size;
    bytes += task->bytes;
  }
  void PushFront(TaskRecord* task) {
    task->previous = nullptr;
    task->next = first;
    (first != nullptr ? first->previous : last) = task;
    first = task;
    ++size;
    bytes += task->bytes;
  }
  void Remove(TaskRecord* task) {
    (task->previous != nullptr ? task->previous->next : first) = task->next;
    (task->next != nullptr ? task->next->previous : last) = task->previous;
    task->previous = task->next = nullptr;
    --size;
    bytes -= task->bytes;
  }
  TaskRecord* PopFront() {
    TaskRecord* task = first;
    if (task != nullptr) Remove(task);
    return task;
  }
};

}  // namespace sheaf
