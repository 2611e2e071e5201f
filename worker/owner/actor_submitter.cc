// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/actor_submitter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/describe_death.h"
#include "worker/owner/task_submitter.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr Nanos kAskAgain = kSecond;
using State = proto::ActorAnswer;

Nanos AsksAgainAt(const ActorClient& client) {
  const Nanos wait = client.detached ? ActorSubmitter::kFirstAskAgain << std::min<int>(
                                           std::max<int>(client.questions, 1) - 1, 10)
                                     : kAskAgain;
  return client.asked_at + std::min(wait, kAskAgain);
}

}  // namespace

ActorSubmitter::ActorSubmitter(ProcessId self, Transport& transport, TaskTable& tasks,
                               PeerTable& peers, const BackPressure& limits)
    : self_(self), transport_(transport), tasks_(tasks), peers_(peers), limits_(limits) {}

ActorClient& ActorSubmitter::ClientOf(ObjectEntry& creation) {
  ObjectExtra& extra = creation.more();
  if (extra.actor == nullptr) {
    const TaskId task = TaskOf(creation.id);
    const ActorId actor{task.maker_bits, task.sequence_bits};
    std::unique_ptr<ActorClient>& client = clients_[actor];
    client = std::make_unique<ActorClient>();
    client->id = actor;
    client->detached = IsDetachedActorHandle(creation.id);
    extra.actor = client.get();
  }
  return *extra.actor;
}

void ActorSubmitter::Forget(const ObjectEntry& creation) {
  const ActorClient& client = *creation.extra->actor;
  if (client.peer != nullptr) by_process_.erase(client.peer->process);
  if (client.held_back) std::erase(held_back_, &client);
  clients_.erase(client.id);
}

void ActorSubmitter::Submit(ActorClient& client, ObjectEntry& creation, TaskRecord& task) {
  if (client.state == State::DEAD || client.ended) {
    tasks_.Fail(task, client.death);
    return;
  }
  if (!client.held) {
    client.creation = &creation;
    client.held = true;
    tasks_.references().AddUse(creation);
  }
  task.target = &client;
  if (!task.has_reference_arguments() && client.state == State::ALIVE && client.queue.empty() &&
      HasRoom(client)) [[likely]] {
    Push(client, task);
    return;
  }
  ListOf(client, task).PushBack(&task);
  if (!client.asked) Ask(client);
  tasks_.Start(task, *this);
}

void ActorSubmitter::RefuseFromNowOn(ActorClient& client, Error why) {
  if (client.state == State::DEAD) return;
  client.ended = true;
  client.death = std::move(why);
}

// One input about `client`. The end of a call can make arguments of others ready, or fail them,
// from inside: only the outermost input settles, so that the client stays while somebody works on
// it.
class ActorSubmitter::Input {
 public:
  Input(ActorSubmitter& submitter, ActorClient& client) : submitter_(submitter), client_(client) {
    ++client_.inputs;
  }
  ~Input() {
    if (--client_.inputs == 0) submitter_.Settle(client_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

 private:
  ActorSubmitter& submitter_;
  ActorClient& client_;
};

void ActorSubmitter::Settle(ActorClient& client) {
  if (!client.held || pending(client) != 0) return;
  client.held = false;
  tasks_.references().DropUse(*std::exchange(client.creation, nullptr));
}

void ActorSubmitter::OnArgumentsReady(TaskRecord& task) {
  ActorClient& client = *task.target.actor();
  const Input input(*this, client);
  if (task.references) {
    for (const auto& argument : task.references->arguments) {
      if (argument.object->state != ObjectState::kError) continue;
      const Error error = ArgumentFailed(task, argument.object->extra->error);
      ListOf(client, task).Remove(&task);
      tasks_.Fail(task, error);
      Pump(client);
      return;
    }
  }
  if (client.out_of_order) {
    client.waiting.Remove(&task);
    client.queue.PushBack(&task);
  }
  task.state = TaskState::kQueued;
  Pump(client);
}

void ActorSubmitter::Pump(ActorClient& client) {
  if (!PushWhileRoom(client) && !std::exchange(client.held_back, true))
    held_back_.push_back(&client);
}

void ActorSubmitter::PushHeldBack() {
  std::erase_if(held_back_, [this](ActorClient* client) {
    client->held_back = !PushWhileRoom(*client);
    return !client->held_back;
  });
}

// False: the next call waits for room.
bool ActorSubmitter::PushWhileRoom(ActorClient& client) {
  if (client.state != State::ALIVE) return true;
  // One whose arguments are missing holds back those behind it, as long as it is in this list.
  while (!client.queue.empty() && client.queue.first->state == TaskState::kQueued) {
    if (!HasRoom(client)) return false;
    Push(client, *client.queue.PopFront());
  }
  return true;
}

void ActorSubmitter::Push(ActorClient& client, TaskRecord& task) {
  if (task.retries_left == kRetriesOfActor) task.retries_left = client.max_task_retries;
  tasks_.Push(task, *client.peer, client.lease, ++client.pushes);
  client.in_flight.PushBack(&task);
}

void ActorSubmitter::Ask(ActorClient& client) {
  client.asked = true;
  client.asked_at = tasks_.clock().Now();
  if (client.local) return;
  const ProcessId creator = client.id.maker();
  if (client.detached) {
    client.questions = static_cast<uint8_t>(std::min(client.questions + 1, UINT8_MAX));
    asked_ = true;
    if (ask_gcs_) ask_gcs_(client.id);
    return;
  }
  proto::ActorQuery query;
  query.set_actor_id(client.id.Binary());
  SendMessage(transport_.To(creator), FrameKind::kActorQuery, query);
}

void ActorSubmitter::OnReply(const TaskTable::Reply& reply, ProcessId from) {
  TaskRecord& task = *reply.task;
  ActorClient& client = *task.target.actor();
  if (client.peer == nullptr || client.peer->process != from) return;
  const Input input(*this, client);
  ++client.replies;
  client.in_flight.Remove(&task);
  if (tasks_.Finish(reply, from) == TaskTable::Outcome::kRetry) {
    // What it failed for may be an argument that is lost: it waits until that is made again, before
    // all that was called later, or ends in its error.
    task.state = TaskState::kWaitingForArguments;
    ListOf(client, task).PushFront(&task);
    tasks_.Start(task, *this);
  }
}

void ActorSubmitter::OnReturned(TaskRecord& task) {
  // The actor is ending: its next incarnation, or the error of its death, comes with an answer.
  ActorClient& client = *task.target.actor();
  const Input input(*this, client);
  client.in_flight.Remove(&task);
  task.state = TaskState::kQueued;
  if (client.state == State::DEAD) {
    tasks_.Fail(task, client.death);
  } else {
    client.queue.PushFront(&task);
  }
}

void ActorSubmitter::OnAnswer(const proto::ActorAnswer& answer) {
  auto id = ActorId::FromBinary(answer.actor_id());
  if (!id.ok()) return;
  auto found = clients_.find(*id);
  if (found == clients_.end()) return;
  ActorClient& client = *found->second;
  client.answered = true;
  if (client.state == State::DEAD || answer.incarnation() < client.incarnation) return;
  const Input input(*this, client);
  client.max_task_retries = answer.max_task_retries();
  client.max_pending_calls = answer.max_pending_calls();
  if (answer.out_of_order() && !std::exchange(client.out_of_order, true)) {
    for (TaskList all = std::exchange(client.queue, {}); TaskRecord* task = all.PopFront();)
      ListOf(client, *task).PushBack(task);
  }
  switch (answer.state()) {
    case State::ALIVE: {
      if (client.state == State::ALIVE && client.incarnation == answer.incarnation())
        return Pump(client);  // It may have become one that executes out of order.
      const ProcessId process = ProcessId::Unpack(answer.process());
      if (client.peer != nullptr) by_process_.erase(client.peer->process);
      // A new incarnation: what went to the old one and was not answered is decided now.
      while (TaskRecord* task = client.in_flight.PopFront()) client.undecided.PushBack(task);
      client.state = State::ALIVE;
      client.questions = 0;
      client.incarnation = answer.incarnation();
      client.lease = answer.lease();
      client.pushes = kPushOfCreation;
      client.peer = &peers_.Of(process);
      client.own = process == self_;
      by_process_[process] = &client;
      DecideAfterDeath(client, false);
      client.node = process.node;
      Pump(client);
      return;
    }
    case State::PENDING:
    case State::RESTARTING:
      client.state = answer.state();
      client.incarnation = answer.incarnation();
      if (answer.state() == State::RESTARTING) DecideAfterDeath(client, false);
      return;
    case State::DEAD:
    default: {
      const auto kind =
          answer.error() == 0 ? ErrorKind::kActorDied : static_cast<ErrorKind>(answer.error());
      client.death = {kind, answer.message(), answer.payload()};
      client.state = State::DEAD;
      if (client.peer != nullptr) by_process_.erase(client.peer->process);
      client.peer = nullptr;
      while (TaskRecord* task = client.in_flight.PopFront()) client.undecided.PushBack(task);
      DecideAfterDeath(client, true);
      // Failing one may fail another that waits for its result, and takes it out of the queue.
      while (TaskRecord* task = client.queue.PopFront()) tasks_.Fail(*task, client.death);
      while (TaskRecord* task = client.waiting.PopFront()) tasks_.Fail(*task, client.death);
      return;
    }
  }
}

void ActorSubmitter::DecideAfterDeath(ActorClient& client, bool dead) {
  const auto unavailable = [&](const TaskRecord& task) {
    return Error{ErrorKind::kActorUnavailable,
                 absl::StrCat("the actor ", client.id.ToHex(), " died and restarts while ",
                              tasks_.Describe(task),
                              " was on its way. Executed: unknown; allow retries "
                              "(max_task_retries) if it may run twice."),
                 {}};
  };
  TaskList undecided = std::exchange(client.undecided, {});
  std::vector<TaskRecord*> again, over;
  while (TaskRecord* task = undecided.PopFront()) {
    bool runs_again = !dead && !task->cancelled;
    if (runs_again && task->push != 0) {  // 0: it had not started.
      const Error lost = unavailable(*task);
      runs_again = tasks_.TakeRetry(*task, &lost);
    }
    (runs_again ? again : over).push_back(task);
  }
  // First: the end of a call may fail another that waits for its value, and those behind go on.
  for (auto task = again.rbegin(); task != again.rend(); ++task) {
    (*task)->state = TaskState::kQueued;
    client.queue.PushFront(*task);
  }
  for (TaskRecord* task : over) {
    if (dead) {
      tasks_.FailStarted(*task, client.death, client.node);
    } else if (task->cancelled) {
      tasks_.FailStarted(*task, tasks_.Cancelled(*task), client.node);
    } else {
      tasks_.FailStarted(*task, unavailable(*task), client.node);
    }
  }
}

void ActorSubmitter::OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started) {
  if (auto found = by_process_.find(process); found != by_process_.end()) {
    ActorClient& client = *found->second;
    by_process_.erase(found);
    client.peer = nullptr;
    if (client.state == State::ALIVE) client.state = State::RESTARTING;
    while (TaskRecord* task = client.in_flight.PopFront()) {
      if (task->push > started) task->push = 0;
      client.undecided.PushBack(task);
    }
    Ask(client);
  }
  // Actors end with their creator.
  std::vector<std::pair<ActorId, uint32_t>> ended;
  for (auto client = clients_.lower_bound(ActorId{process.packed(), 0});
       client != clients_.end() && client->first.maker() == process; ++client) {
    if (!client->second->detached && client->second->state != State::DEAD)
      ended.emplace_back(client->first, client->second->incarnation);
  }
  for (auto [id, incarnation] : ended) {
    proto::ActorAnswer dead;
    dead.set_actor_id(id.Binary());
    dead.set_state(State::DEAD);
    dead.set_incarnation(incarnation);
    dead.set_message(absl::StrCat("the actor ", id.ToHex(), " ended with its creator, which ",
                                  DescribeDeath(death)));
    OnAnswer(dead);
  }
}

void ActorSubmitter::Cancel(TaskRecord& task, bool recursive) {
  ActorClient& client = *task.target.actor();
  const Input input(*this, client);
  task.cancelled = true;
  if (task.state == TaskState::kPushed) {
    if (client.peer != nullptr) {
      client.peer->channel->Send(Lane::kControl, FrameKind::kCancelTask,
                                 AsBytes(CancelTask{tasks_.IdOf(task), 0, recursive}));
    }
    return;
  }
  ListOf(client, task).Remove(&task);
  tasks_.Fail(task, CancelledBeforeStart(tasks_.Describe(task)));
  Pump(client);
}

Nanos ActorSubmitter::Tick() {
  const Nanos now = tasks_.clock().Now();
  Nanos next = kForever;
  for (auto& [id, client] : clients_) {
    if (client->local || client->state == State::ALIVE || client->state == State::DEAD ||
        pending(*client) == 0)
      continue;
    if (now >= AsksAgainAt(*client)) Ask(*client);
    next = std::min(next, AsksAgainAt(*client));
  }
  return next;
}

NodeNumber ActorSubmitter::AwaitedNode(const TaskRecord& task) const {
  const auto* client = task.target.actor();
  if (client == nullptr || client->state == State::DEAD) return 0;
  if (client->state == State::ALIVE && client->peer != nullptr) return client->peer->process.node;
  return client->local || client->detached ? 0 : client->id.maker().node;
}

std::string ActorSubmitter::Words(const TaskRecord& task) const {
  const ActorClient* client = task.target.actor();
  if (task.state == TaskState::kWaitingForArguments)
    return absl::StrCat("waits for ", task.unresolved, " arguments");
  if (client == nullptr) return {};
  switch (client->state) {
    case State::ALIVE:
      return task.state == TaskState::kPushed ? "is with its actor"
                                              : "waits for an earlier call of its caller";
    case State::DEAD:
      return "its actor is dead";
    case State::RESTARTING:
      return "waits for its actor to restart";
    default:
      return "waits for its actor to start";
  }
}

}  // namespace sheaf
