// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "metrics/mailbox_metrics.h"
#include "worker/limits.h"
#include "worker/runtime_impl.h"

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

}  // namespace

void RuntimeImpl::AnswerStateQuery(const proto::StateQuery& query) {
  proto::StateAnswer answer;
  answer.set_request(query.request());
  RowBudget budget(query.limit(), answer);
  if (query.what() == proto::StateQuery::TASKS || query.what() == proto::StateQuery::WHY) {
    owner_->tasks.ForEach([&](TaskRecord& task) {
      const std::string id = owner_->tasks.IdOf(task).ToHex();
      if (task.state == TaskState::kFinished ||
          (!query.id().empty() && id.compare(0, 28, query.id(), 0, 28) != 0))
        return;
      if (budget.full()) return;
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id);
      row.set_name(TaskTable::NameOf(task));
      row.set_owner(self_.packed());
      row.set_attempt(task.attempt);
      row.set_job(dispatch_->job().number);
      const bool of_actor = task.spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD;
      switch (task.state) {
        case TaskState::kWaitingForArguments:
          row.set_state("WAITING_FOR_ARGUMENTS");
          break;
        case TaskState::kPushed:
          row.set_state("PUSHED");
          break;
        default:
          row.set_state(of_actor ? "WAITING_FOR_ACTOR" : "WAITING_FOR_LEASE");
          break;
      }
      const OwnedLease* lease = task.target.lease();
      if (lease != nullptr && task.state == TaskState::kPushed)
        row.set_worker(lease->worker->process.packed());
      if (task.spec->spec.kind() != proto::TaskTemplate::ACTOR_CREATION)
        row.set_words(owner_->WordsOf(task));
      budget.Count(row);
    });
    executor_->ForEachRunning([&](const CallExecution& call) {
      const TaskId id = call.task();
      if ((!query.id().empty() && id.ToHex() != query.id()) || budget.full()) return;
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id.ToHex());
      row.set_name(std::string(call.name()));
      row.set_state("RUNNING");
      row.set_owner(id.maker_bits);
      row.set_worker(self_.packed());
      budget.Count(row);
    });
  }
  if (query.what() == proto::StateQuery::OBJECTS) {
    owner_->references.ForEach([&](ObjectEntry& object) {
      if (!object.owned || (!query.id().empty() && object.id.ToHex() != query.id())) return;
      if (budget.full()) return;
      proto::ObjectRow& row = *answer.add_objects();
      row.set_object_id(object.id.ToHex());
      row.set_size_bytes(object.size);
      switch (object.state) {
        case ObjectState::kPending:
          row.set_where(object.released ? "lineage" : "pending");
          break;
        case ObjectState::kValue:
          row.set_where("memory");
          break;
        case ObjectState::kStore:
          row.set_where("store");
          break;
        case ObjectState::kError:
          row.set_where("error");
          break;
      }
      row.set_owner(self_.packed());
      row.set_local_refs(object.handles.load(std::memory_order_relaxed));
      row.set_task_refs(object.uses);
      if (object.extra)
        row.set_borrowing_nodes(static_cast<uint32_t>(object.extra->borrowers.size()));
      budget.Count(row);
    });
  }
  SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kStateAnswer, answer);
}

// The pure state counts for itself; the page shows it, a fraction of a second late.
void RuntimeImpl::PublishMetrics() {
  using metrics::CounterId;
  metrics::Page& page = metrics::PageOf(segment_->data());
  auto set = [&](CounterId id, uint64_t value) {
    page.counter(id).store(value, std::memory_order_relaxed);
  };
  const TaskCounts& tasks = owner_->tasks.task_counts();
  set(CounterId::kTasksSubmitted, tasks.submitted);
  set(CounterId::kTasksFinished, tasks.finished);
  set(CounterId::kTasksFailed, tasks.failed);
  set(CounterId::kTasksRetried, tasks.retried);
  set(CounterId::kTasksCancelled, tasks.cancelled);
  const TaskCounts& calls = owner_->tasks.call_counts();
  set(CounterId::kActorCallsSubmitted, calls.submitted);
  set(CounterId::kActorCallsFinished, calls.finished);
  set(CounterId::kActorCallsFailed, calls.failed);
  set(CounterId::kActorCallsRetried, calls.retried);
  set(CounterId::kActorCallsCancelled, calls.cancelled);
  set(CounterId::kActorRestarts, owner_->created_actors.restarts());
  set(CounterId::kPushesSent, owner_->tasks.pushes());
  set(CounterId::kPushesReturned, owner_->pushes_returned);
  set(CounterId::kReconstructions, owner_->tasks.reconstructions());
  set(CounterId::kPutsPrivate, object_counts_.puts_private);
  set(CounterId::kPutsStore, object_counts_.puts_store);
  set(CounterId::kPutBytes, object_counts_.put_bytes);
  set(CounterId::kGetsPrivate, object_counts_.gets_private);
  set(CounterId::kGetsStore, object_counts_.gets_store);
  set(CounterId::kDoorbellSleeps, sleeps_);
  page.gauge(metrics::GaugeId::kPrivateBytes)
      .store(static_cast<int64_t>(owner_->references.value_bytes()), std::memory_order_relaxed);
  metrics::PublishMailbox(mailbox_->counts(), page);
  page.gauge(metrics::GaugeId::kQueuedTasks)
      .store(static_cast<int64_t>(owner_->tasks.size()), std::memory_order_relaxed);
  page.gauge(metrics::GaugeId::kOwnedObjects)
      .store(static_cast<int64_t>(owner_->references.size()), std::memory_order_relaxed);
}

}  // namespace sheaf
