// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/runtime_impl.h"

namespace sheaf {

void RuntimeImpl::AnswerStateQuery(const proto::StateQuery& query) {
  proto::StateAnswer answer;
  answer.set_request(query.request());
  const uint32_t limit = query.limit() == 0 ? 10'000 : query.limit();
  if (query.what() == proto::StateQuery::TASKS || query.what() == proto::StateQuery::WHY) {
    owner_->tasks.ForEach([&](TaskRecord& task) {
      const std::string id = owner_->tasks.IdOf(task).ToHex();
      if (task.state == TaskState::kFinished ||
          (!query.id().empty() && id.compare(0, 28, query.id(), 0, 28) != 0))
        return;
      if (static_cast<uint32_t>(answer.tasks_size()) >= limit) {
        answer.set_truncated(true);
        return;
      }
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id);
      row.set_name(task.spec->spec.name());
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
      if (of_actor) {
        row.set_words(owner_->actors.Words(task));
      } else if (task.spec->spec.kind() == proto::TaskTemplate::TASK) {
        if (task.state == TaskState::kPushed) {
          row.set_worker(static_cast<const OwnedLease*>(task.target)->worker->process.packed());
        }
        row.set_words(owner_->submitter.Words(task));
      }
    });
    executor_->ForEachRunning([&](const CallExecution& call) {
      const TaskId id = call.task();
      if (!query.id().empty() && id.ToHex() != query.id()) return;
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(id.ToHex());
      row.set_name(call.spec().name());
      row.set_state("RUNNING");
      row.set_owner(id.maker_bits);
      row.set_worker(self_.packed());
    });
  }
  if (query.what() == proto::StateQuery::OBJECTS) {
    owner_->references.ForEach([&](ObjectEntry& object) {
      if (!object.owned || (!query.id().empty() && object.id.ToHex() != query.id())) return;
      if (static_cast<uint32_t>(answer.objects_size()) >= limit) {
        answer.set_truncated(true);
        return;
      }
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
    });
  }
  SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kStateAnswer, answer);
}

}  // namespace sheaf
