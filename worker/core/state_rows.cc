// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/state_rows.h"

#include <algorithm>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "telemetry/event_words.h"
#include "telemetry/row_filters.h"
#include "telemetry/why_counts.h"
#include "worker/core/process_core.h"
#include "worker/limits.h"

namespace sheaf {
namespace {

// What one answer may hold. Who asks for more is told that there is more.
class RowBudget {
 public:
  RowBudget(uint32_t limit, proto::StateAnswer& answer)
      : rows_(std::min(limit == 0 ? 10'000 : limit, kMaxStateRows)), answer_(answer) {}
  bool full() {
    if (rows_ == 0 || bytes_ > kMaxStateBytes) answer_.set_truncated(true);
    return answer_.truncated();
  }
  template <class Row>
  void Count(const Row& row) {
    --rows_;
    bytes_ += row.ByteSizeLong();
  }

 private:
  uint32_t rows_;
  size_t bytes_ = 0;
  proto::StateAnswer& answer_;
};

const char* StateOf(const TaskRecord& task) {
  switch (task.state) {
    case TaskState::kWaitingForArguments:
      return "WAITING_FOR_ARGUMENTS";
    case TaskState::kPushed:
      return "PUSHED";
    default:
      return task.spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD ? "WAITING_FOR_ACTOR"
                                                                         : "WAITING_FOR_LEASE";
  }
}

const char* PlaceOf(const ObjectEntry& object) {
  switch (object.state) {
    case ObjectState::kPending:
      return object.released ? "lineage" : "pending";
    case ObjectState::kValue:
      return "memory";
    case ObjectState::kStore:
      return "store";
    case ObjectState::kError:
      return "error";
  }
  return "";
}

const char* TypeOf(const proto::TaskTemplate& spec) {
  return telemetry::CallKindName(telemetry::CallKindOf(spec.kind()));
}

void Add(proto::TaskRow row, const proto::StateQuery& query, RowBudget& budget,
         proto::StateAnswer& answer) {
  if (!telemetry::FiltersHold(row, query.filters())) return;
  budget.Count(row);
  *answer.add_tasks() = std::move(row);
}

// Calls that this process has made and that are not over.
void AddOwnCalls(ProcessCore& core, const proto::StateQuery& query, RowBudget& budget,
                 proto::StateAnswer& answer) {
  const std::string& id_sought = query.id();
  core.owner.tasks.ForEach([&](TaskRecord& task) {
    if (task.state == TaskState::kFinished || budget.full()) return;
    // Before its row is made: there may be a million, and the runtime waits.
    if (!query.filters().empty() &&
        (!telemetry::MayHold("state", StateOf(task), query.filters()) ||
         !telemetry::MayHold("type", TypeOf(task.spec->spec), query.filters()) ||
         !telemetry::MayHold("error_type", "", query.filters()) ||
         !telemetry::MayHold("name", TaskTable::NameOf(task), query.filters())))
      return;
    const std::string id = core.owner.tasks.IdOf(task).ToHex();
    if (!id_sought.empty() && id.compare(0, 28, id_sought, 0, 28) != 0) return;
    proto::TaskRow row;
    row.set_task_id(id);
    row.set_type(TypeOf(task.spec->spec));
    row.set_created_unix_ms(telemetry::UnixMs(task.created_ms, UnixNow()));
    row.set_parent_sequence(task.parent.sequence_bits);
    row.set_name(TaskTable::NameOf(task));
    row.set_owner(core.self.packed());
    row.set_attempt(task.attempt);
    row.set_job(core.job());
    row.set_state(StateOf(task));
    if (const ActorClient* actor = task.target.actor()) row.set_actor_id(actor->id.ToHex());
    const OwnedLease* lease = task.target.lease();
    if (lease != nullptr && task.state == TaskState::kPushed)
      row.set_worker(lease->worker->process.packed());
    if (task.spec->spec.kind() != proto::TaskTemplate::ACTOR_CREATION)
      row.set_words(core.owner.WordsOf(task));
    Add(std::move(row), query, budget, answer);
  });
}

// Those of others that run here.
void AddRunningCalls(ProcessCore& core, const proto::StateQuery& query, RowBudget& budget,
                     proto::StateAnswer& answer) {
  const std::string& id_sought = query.id();
  core.executor.ForEachRunning([&](const CallExecution& call) {
    const TaskId id = call.task();
    if ((!id_sought.empty() && id.ToHex() != id_sought) || budget.full()) return;
    proto::TaskRow row;
    row.set_task_id(id.ToHex());
    row.set_type(TypeOf(call.spec()));
    row.set_created_unix_ms(telemetry::UnixMs(call.head().created_ms, UnixNow()));
    row.set_parent_sequence(call.head().parent_sequence_bits);
    const Nanos began = call.began != 0 ? call.began : call.started;
    if (began != 0) row.set_begin_unix_ns(began + UnixNow() - MonotonicNow());
    row.set_name(std::string(call.name()));
    row.set_state("RUNNING");
    row.set_owner(id.maker_bits);
    row.set_job(core.job());
    row.set_attempt(call.attempt());
    if (!call.actor_id.is_nil()) row.set_actor_id(call.actor_id.ToHex());
    row.set_worker(core.self.packed());
    Add(std::move(row), query, budget, answer);
  });
}

// How many there are of each function.
class FunctionCounts {
 public:
  explicit FunctionCounts(JobNumber job) : job_(job) {}

  // Of a call with that name and template: calls with a name of their own count by it.
  proto::FunctionRow& Of(const std::string& name, const proto::TaskTemplate& spec) {
    const char* const type = TypeOf(spec);
    proto::FunctionRow& row = rows_[{name, type}];
    if (row.type().empty()) {
      row.set_name(std::string(telemetry::Shortened(name, telemetry::kFunctionNameBytes)));
      row.set_type(type);
      row.set_job(job_);
    }
    return row;
  }
  void Move(proto::StateAnswer& answer) {
    for (auto& [key, row] : rows_) {
      if (answer.functions_size() == kMostFunctions) return answer.set_truncated(true);
      *answer.add_functions() = std::move(row);
    }
  }

 private:
  static constexpr int kMostFunctions = 10'000;
  const JobNumber job_;
  absl::node_hash_map<std::pair<std::string, std::string_view>, proto::FunctionRow> rows_;
};

void AddFunctions(ProcessCore& core, proto::StateAnswer& answer) {
  FunctionCounts counts(core.job());
  const TemplateRecord* last = nullptr;  // Most calls are of the template of the one before.
  proto::FunctionRow* row = nullptr;
  core.owner.tasks.ForEach([&](TaskRecord& task) {
    if (task.state == TaskState::kFinished) return;
    if (task.spec != last || task.has_own_name()) {
      row = &counts.Of(TaskTable::NameOf(task), task.spec->spec);
      last = task.has_own_name() ? nullptr : task.spec;
    }
    switch (task.state) {
      case TaskState::kWaitingForArguments:
        return row->set_waiting_for_arguments(row->waiting_for_arguments() + 1);
      case TaskState::kPushed:
        return row->set_pushed(row->pushed() + 1);
      default:
        return row->set_waiting_for_place(row->waiting_for_place() + 1);
    }
  });
  core.executor.ForEachRunning([&](const CallExecution& call) {
    proto::FunctionRow& of_call = counts.Of(std::string(call.name()), call.spec());
    of_call.set_running(of_call.running() + 1);
  });
  counts.Move(answer);
}

// Nothing needs it but references of its owner, and that for long: they may have been forgotten.
bool MayLeak(const ProcessCore& core, const ObjectEntry& object, Nanos age) {
  const bool has_value = object.state == ObjectState::kValue || object.state == ObjectState::kStore;
  const bool is_handle = object.stream || (object.extra && object.extra->actor != nullptr);
  const bool is_borrowed = object.extra && !object.extra->borrowers.empty();
  return age >= core.leak_age() && has_value && object.held_by_handles != 0 && object.uses == 0 &&
         !is_borrowed && !is_handle;
}

void AddObjects(ProcessCore& core, const proto::StateQuery& query, RowBudget& budget,
                proto::StateAnswer& answer) {
  const telemetry::Filters& filters = query.filters();
  if (!telemetry::MayHold("owner", core.self.ToString(), filters)) return;
  core.owner.references.ForEach([&](ObjectEntry& object) {
    if (!object.owned || (!query.id().empty() && object.id.ToHex() != query.id())) return;
    if (!filters.empty() && (!telemetry::MayHold("where", PlaceOf(object), filters) ||
                             !telemetry::MayHold("object_id", object.id.ToHex(), filters)))
      return;
    const Nanos age = core.AgeOf(object.id);
    const bool may_leak = MayLeak(core, object, age);
    if (!telemetry::MayHold("may_leak", may_leak ? "true" : "false", filters)) return;
    if (budget.full()) return;
    proto::ObjectRow& row = *answer.add_objects();
    row.set_object_id(object.id.ToHex());
    row.set_size_bytes(object.size);
    row.set_where(PlaceOf(object));
    row.set_owner(core.self.packed());
    row.set_local_refs(object.handles.load(std::memory_order_relaxed));
    row.set_task_refs(object.uses);
    if (object.extra)
      row.set_borrowing_nodes(static_cast<uint32_t>(object.extra->borrowers.size()));
    row.set_age_ms(age / kMillisecond);
    row.set_may_leak(may_leak);
    budget.Count(row);
  });
}

void CountObjects(ProcessCore& core, proto::StateAnswer& answer) {
  absl::btree_map<std::string_view, proto::CountRow> counts;
  core.owner.references.ForEach([&](ObjectEntry& object) {
    if (!object.owned) return;
    proto::CountRow& row = counts[PlaceOf(object)];
    row.set_count(row.count() + 1);
    row.set_bytes(row.bytes() + object.size);
  });
  for (auto& [where, row] : counts) {
    row.set_key(std::string(where));
    *answer.add_counts() = std::move(row);
  }
}

void AddCount(std::string_view key, uint64_t count, proto::StateAnswer& answer) {
  proto::CountRow& row = *answer.add_counts();
  row.set_key(std::string(key));
  row.set_count(count);
}

std::string WhyActor(const ProcessCore& core, const TaskRecord& creation,
                     proto::StateAnswer& answer) {
  const CreatedActor& actor = *creation.target.created();
  if (creation.state == TaskState::kWaitingForArguments) return core.owner.WordsOf(creation);
  if (actor.lease == 0) {
    AddCount(telemetry::kWhyLease, actor.key, answer);
    return actor.state == proto::ActorAnswer::RESTARTING ? "waits for a worker to restart in"
                                                         : "waits for a worker";
  }
  return absl::StrCat(actor.constructed ? "is alive" : "starts: its constructor runs",
                      " in process ", actor.process.ToString());
}

std::string WhyCall(ProcessCore& core, const TaskRecord& task, proto::StateAnswer& answer) {
  if (task.spec->spec.kind() == proto::TaskTemplate::ACTOR_CREATION)
    return WhyActor(core, task, answer);
  if (task.state == TaskState::kFinished) return "has ended";
  const LeaseKey* key = task.spec->key;
  if (task.spec->spec.kind() == proto::TaskTemplate::TASK && task.state == TaskState::kQueued &&
      key != nullptr && key->notice.empty())
    AddCount(telemetry::kWhyLease, key->number, answer);
  return core.owner.WordsOf(task);
}

std::string WhyObject(const ObjectEntry& object) {
  switch (object.state) {
    case ObjectState::kPending:
      return "the object is still to come";
    case ObjectState::kError:
      return "the object is an error: what should have made it has failed";
    default:
      return absl::StrCat("the object is ready: ", object.size, " bytes (", PlaceOf(object), ")");
  }
}

// Of a call, an actor or an object that this process made.
void AnswerWhy(ProcessCore& core, const std::string& hex, proto::StateAnswer& answer) {
  const absl::StatusOr<ObjectId> id = ObjectId::FromHex(hex);
  if (!id.ok() || id->maker() != core.self) return;
  const TaskId call = TaskOf(*id);
  const TaskRecord* found = nullptr;
  core.owner.tasks.ForEach([&](TaskRecord& task) {
    if (core.owner.tasks.IdOf(task) == call) found = &task;
  });
  if (found != nullptr) {
    answer.set_words(absl::StrCat(TaskTable::NameOf(*found), " ", WhyCall(core, *found, answer)));
    return;
  }
  core.owner.references.ForEach([&](const ObjectEntry& object) {
    if (object.owned && object.id == *id) answer.set_words(WhyObject(object));
  });
  if (!answer.words().empty() || !core.owner.references.HasMade(id->sequence())) return;
  if (id->index() == 0) {
    AddCount(telemetry::kWhyMade, 1, answer);
  } else if (!IsDetachedActorHandle(*id)) {  // Which is counted nowhere.
    answer.set_words("the object was freed: nothing holds it any more");
  }
}

}  // namespace

proto::StateAnswer AnswerOf(ProcessCore& core, const proto::StateQuery& query) {
  proto::StateAnswer answer;
  answer.set_request(query.request());
  RowBudget budget(query.limit(), answer);
  if (query.what() == proto::StateQuery::WHY) AnswerWhy(core, query.id(), answer);
  if (query.what() == proto::StateQuery::TASKS) {
    AddOwnCalls(core, query, budget, answer);
    AddRunningCalls(core, query, budget, answer);
  }
  if (query.what() == proto::StateQuery::FUNCTIONS) AddFunctions(core, answer);
  if (query.what() == proto::StateQuery::OBJECTS) {
    query.counts_only() ? CountObjects(core, answer) : AddObjects(core, query, budget, answer);
  }
  return answer;
}

void PublishCounts(const ProcessCore& core, metrics::Page& page) {
  using metrics::CounterId;
  const auto set = [&](CounterId id, uint64_t value) {
    page.counter(id).store(value, std::memory_order_relaxed);
  };
  const auto show = [&](metrics::GaugeId id, uint64_t value) {
    page.gauge(id).store(static_cast<int64_t>(value), std::memory_order_relaxed);
  };
  const TaskCounts& tasks = core.owner.tasks.task_counts();
  set(CounterId::kTasksSubmitted, tasks.submitted);
  set(CounterId::kTasksFinished, tasks.finished);
  set(CounterId::kTasksFailed, tasks.failed);
  set(CounterId::kTasksRetried, tasks.retried);
  set(CounterId::kTasksCancelled, tasks.cancelled);
  const TaskCounts& calls = core.owner.tasks.call_counts();
  set(CounterId::kActorCallsSubmitted, calls.submitted);
  set(CounterId::kActorCallsFinished, calls.finished);
  set(CounterId::kActorCallsFailed, calls.failed);
  set(CounterId::kActorCallsRetried, calls.retried);
  set(CounterId::kActorCallsCancelled, calls.cancelled);
  set(CounterId::kActorRestarts, core.owner.created_actors.restarts());
  set(CounterId::kPushesSent, core.owner.tasks.pushes());
  set(CounterId::kPushesReturned, core.owner.pushes_returned);
  set(CounterId::kReconstructions, core.owner.tasks.reconstructions());
  const ObjectCounts& objects = core.object_counts();
  set(CounterId::kPutsPrivate, objects.puts_private);
  set(CounterId::kPutsStore, objects.puts_store);
  set(CounterId::kPutBytes, objects.put_bytes);
  set(CounterId::kGetsPrivate, objects.gets_private);
  set(CounterId::kGetsStore, objects.gets_store);
  show(metrics::GaugeId::kPrivateBytes, core.owner.references.value_bytes());
  show(metrics::GaugeId::kQueuedTasks, core.owner.tasks.size());
  show(metrics::GaugeId::kOwnedObjects, core.owner.references.size());
}

}  // namespace sheaf
