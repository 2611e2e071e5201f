// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/command_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/message_limits.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"

namespace sheaf {
namespace {

constexpr size_t kManyForgotten = 64;  // Rows.

// Rows of Table::kAnswers: client -> confirmed sequence; client, sequence -> serialized reply. An
// answer is deleted in the transaction that raises its client's number, so each sequence is either
// answered or known as confirmed.
std::string ClientKey(ProcessId client) { return RowKey(client.packed()); }
std::string AnswerKey(ProcessId client, uint64_t sequence) {
  return ClientKey(client) + RowKey(sequence);
}

}  // namespace

void CommandPipeline::Load(std::string_view key, std::string_view value) {
  const std::optional<uint64_t> packed = NumberFromRowKey<uint64_t>(key.substr(0, 8));
  if (!packed) return;
  Client& client = clients_[ProcessId::Unpack(*packed)];
  client.on_disk = true;
  if (key.size() == 8) {
    client.confirmed = NumberFromRowKey<uint64_t>(value).value_or(0);
  } else if (const auto sequence = NumberFromRowKey<uint64_t>(key.substr(8))) {
    auto call = std::make_shared<Call>(Call{
        {}, ProcessId::Unpack(*packed), *sequence, /*keep_answer=*/true, /*durable_answer=*/true});
    client.answers[*sequence] = {std::move(call), std::string(value)};
  }
}

CallPtr CommandPipeline::Admit(ProcessId from, const proto::GcsRequest& request, bool keep_answer,
                               bool durable_answer) {
  const ProcessId id = ProcessId::Unpack(request.client());
  auto call = std::make_shared<Call>(Call{from, id, request.sequence(), false, false});
  if (request.confirmed_up_to() > 0) {
    if (const auto known = clients_.find(id); known != clients_.end()) {
      Confirm(known->second, id, request.confirmed_up_to());
    }
  }
  if (!keep_answer || request.sequence() == 0) return call;
  Client& client = clients_[id];
  client.confirmed = std::max(client.confirmed, request.confirmed_up_to());
  if (request.sequence() <= client.confirmed) {
    ++repeats_;
    return nullptr;
  }
  if (const auto kept = client.answers.find(request.sequence()); kept != client.answers.end()) {
    ++repeats_;
    kept->second.call->from = from;  // The answer goes where the question was last heard from.
    if (!kept->second.reply.empty()) Send(*kept->second.call, kept->second.reply);
    return nullptr;
  }
  if (client.answers.size() >= kMaxAnswersPerClient) {
    Answer(call, ErrorReply(ErrorKind::kInvalidArgument,
                            absl::StrCat(client.answers.size(),
                                         " answers are not confirmed; confirm some")));
    return nullptr;
  }
  call->keep_answer = true;
  call->durable_answer = durable_answer;
  client.answers[request.sequence()] = {call, ""};
  return call;
}

void CommandPipeline::Run(CallPtr call, std::vector<std::string> latches,
                          std::function<Outcome()> plan, std::function<void()> on_full) {
  std::sort(latches.begin(), latches.end());
  latches.erase(std::unique(latches.begin(), latches.end()), latches.end());
  auto command = std::make_shared<Command>(
      Command{std::move(call), std::move(latches), 0, std::move(plan), std::move(on_full)});
  ++in_progress_;
  for (const std::string& latch : command->latches) {
    std::deque<CommandPtr>& queue = latches_[latch];
    if (!queue.empty()) ++command->waiting;
    queue.push_back(command);
  }
  if (command->waiting == 0) Start(command);
}

void CommandPipeline::Start(const CommandPtr& command) {
  auto outcome = std::make_shared<Outcome>(command->plan());
  if (outcome->writes.empty()) {
    Finish(command, outcome);
    return;
  }
  if (const CallPtr& call = command->call; call && call->keep_answer && call->durable_answer) {
    outcome->reply.set_client(call->client.packed());
    outcome->reply.set_sequence(call->sequence);
    outcome->writes.push_back({Table::kAnswers, AnswerKey(call->client, call->sequence),
                               outcome->reply.SerializeAsString()});
    if (const auto client = clients_.find(call->client); client != clients_.end())
      client->second.on_disk = true;
  }
  Commit(std::move(outcome->writes), outcome->vital,
         [this, command, outcome](const absl::Status& status) {
           if (status.ok()) {
             Finish(command, outcome);
             return;
           }
           outcome->apply = nullptr;
           outcome->reply = ErrorReply(ErrorKind::kGcsStorageFull, std::string(status.message()));
           Finish(command, outcome);
           if (command->on_full) command->on_full();
         });
}

void CommandPipeline::Finish(const CommandPtr& command, const std::shared_ptr<Outcome>& outcome) {
  if (outcome->apply) outcome->apply();
  if (command->call) Answer(command->call, std::move(outcome->reply));
  Release(command);
}

void CommandPipeline::Release(const CommandPtr& command) {
  --in_progress_;
  for (const std::string& latch : command->latches) {
    const auto found = latches_.find(latch);
    found->second.pop_front();
    if (found->second.empty()) {
      latches_.erase(found);
    } else if (--found->second.front()->waiting == 0) {
      ready_.push_back(found->second.front());
    }
  }
  if (starting_) return;  // The loop below is at work further up the stack.
  starting_ = true;
  while (!ready_.empty()) {
    const CommandPtr next = std::move(ready_.front());
    ready_.pop_front();
    Start(next);
  }
  starting_ = false;
}

void CommandPipeline::Answer(const CallPtr& call, proto::GcsReply reply) {
  reply.set_client(call->client.packed());
  reply.set_sequence(call->sequence);
  if (const size_t size = reply.ByteSizeLong(); size > kMaxBodyBytes - kRoomForHeads) {
    const std::string message =
        absl::StrCat("the answer has ", size, " bytes, at most ", kMaxBodyBytes - kRoomForHeads,
                     "; ask for less at once");
    reply = ErrorReply(ErrorKind::kInvalidArgument, message);
    reply.set_client(call->client.packed());
    reply.set_sequence(call->sequence);
  }
  if (reply.error() != 0) ++errors_;
  std::string bytes = reply.SerializeAsString();
  Send(*call, bytes);
  if (!call->keep_answer) return;
  if (const auto client = clients_.find(call->client); client != clients_.end()) {
    const auto kept = client->second.answers.find(call->sequence);
    if (kept != client->second.answers.end()) {
      kept->second.reply = std::move(bytes);
      return;
    }
  }
  // The client went, or confirmed what it had not heard, while the command was in progress.
  if (call->durable_answer) {
    forgotten_.push_back({Table::kAnswers, AnswerKey(call->client, call->sequence), std::nullopt});
  }
}

void CommandPipeline::Confirm(Client& client, ProcessId id, uint64_t confirmed_up_to) {
  bool forgot = false;
  while (!client.answers.empty() && client.answers.begin()->first <= confirmed_up_to) {
    const auto first = client.answers.begin();
    if (first->second.call->durable_answer) {
      forgotten_.push_back({Table::kAnswers, AnswerKey(id, first->first), std::nullopt});
      forgot = true;
    }
    client.answers.erase(first);
  }
  client.confirmed = std::max(client.confirmed, confirmed_up_to);
  if (forgot) forgotten_.push_back({Table::kAnswers, ClientKey(id), RowKey(client.confirmed)});
}

void CommandPipeline::ForgetRows(ProcessId id, const Client& client) {
  if (!client.on_disk) return;
  for (const auto& [sequence, kept] : client.answers) {
    if (kept.call->durable_answer)
      forgotten_.push_back({Table::kAnswers, AnswerKey(id, sequence), std::nullopt});
  }
  forgotten_.push_back({Table::kAnswers, ClientKey(id), std::nullopt});
}

void CommandPipeline::ForgetClient(ProcessId client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  ForgetRows(client, found->second);
  clients_.erase(found);
}

void CommandPipeline::ForgetNode(NodeNumber node) {
  auto client = clients_.lower_bound(ProcessId{node, 0});
  while (client != clients_.end() && client->first.node == node) {
    ForgetRows(client->first, client->second);
    client = clients_.erase(client);
  }
}

std::set<ProcessId> CommandPipeline::ClientsOn(NodeNumber node) const {
  std::set<ProcessId> clients;
  for (auto at = clients_.lower_bound({node, 0}); at != clients_.end() && at->first.node == node;
       ++at)
    clients.insert(at->first);
  return clients;
}

void CommandPipeline::Tick() {
  if (forgotten_.size() >= kManyForgotten) CommitWithForgotten({}, [](const absl::Status&) {});
}

// What is vital goes alone: on a full disk it may be the last that fits.
void CommandPipeline::Commit(WriteBatch writes, bool vital, Storage::Done done) {
  if (!vital) return CommitWithForgotten(std::move(writes), std::move(done));
  ++commits_;
  storage_.CommitVital(std::move(writes), std::move(done));
}

void CommandPipeline::CommitWithForgotten(WriteBatch writes, Storage::Done done) {
  auto forgotten = std::make_shared<WriteBatch>(std::exchange(forgotten_, {}));
  // First: a later write of this batch to the same row counts.
  writes.insert(writes.begin(), forgotten->begin(), forgotten->end());
  ++commits_;
  storage_.Commit(std::move(writes),
                  [this, forgotten, done = std::move(done)](absl::Status status) {
                    if (!status.ok())
                      forgotten_.insert(forgotten_.begin(), forgotten->begin(), forgotten->end());
                    done(std::move(status));
                  });
}

void CommandPipeline::Send(const Call& call, std::string_view reply) {
  transport_.To(call.from).Send(Lane::kControl, FrameKind::kGcsReply, reply);
}

}  // namespace sheaf
