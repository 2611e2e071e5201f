// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/state_queries.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/queries/merge_rows.h"
#include "raylet/queries/row_budget.h"
#include "raylet/queries/stack_rows.h"
#include "telemetry/why_counts.h"

namespace sheaf {
namespace {

constexpr uint32_t kDefaultLimit = 10'000;
constexpr size_t kNodesAskedAtOnce = 64;  // Of one query; the others follow as answers come.
constexpr size_t kMaxOpenQueries = 256;
constexpr size_t kMaxWords = 1 << 20;
constexpr int kLogPatience = 5;                         // Times the limit: a disk is read there.
constexpr uint64_t kFirstLogQuery = uint64_t{1} << 63;  // Of two, which kind an answer is for.

bool WantsProcesses(proto::StateQuery::What what) {
  return what == proto::StateQuery::ACTORS || what == proto::StateQuery::TASKS ||
         what == proto::StateQuery::OBJECTS || what == proto::StateQuery::FUNCTIONS;
}

bool WantsNodes(proto::StateQuery::What what) {
  return WantsProcesses(what) || what == proto::StateQuery::GROUPS ||
         what == proto::StateQuery::WORKERS || what == proto::StateQuery::DEMAND ||
         what == proto::StateQuery::SERIES || what == proto::StateQuery::STACKS ||
         what == proto::StateQuery::PROFILE || what == proto::StateQuery::DIGEST;
}

}  // namespace

StateQueries::StateQueries(Deps deps, const StateRows::Sources& sources)
    : deps_(std::move(deps)),
      rows_(sources),
      logs_({.node = deps_.node,
             .limit = kLogPatience * deps_.limit,
             .clock = deps_.clock,
             .transport = deps_.transport,
             .view = deps_.view,
             .processes = deps_.processes,
             .pool = sources.pool,
             .runs_entrypoint = deps_.runs_entrypoint,
             .is_node_dead = deps_.is_node_dead,
             .logs = deps_.logs},
            kFirstLogQuery) {}

absl::Status StateQueries::OnQuery(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::StateQuery>(frame));
  if (LogQueries::IsAboutLogs(message)) {
    logs_.OnQuery(from, std::move(message));
    return absl::OkStatus();
  }
  if (queries_.size() >= kMaxOpenQueries) {
    proto::StateAnswer busy;
    busy.set_request(message.request());
    busy.set_error("too many queries at once; ask again");
    SendMessage(To(from), FrameKind::kStateAnswer, busy);
    return absl::OkStatus();
  }
  const uint64_t number = ++last_query_;
  Query& query = queries_[number];
  query.asker = from;
  StateAsked& asked = query.asked;
  asked.message = std::move(message);
  asked.limit =
      std::min(asked.message.limit() == 0 ? kDefaultLimit : asked.message.limit(), kMaxStateRows);
  // Who asks for its own askers leaves them time to hear of what was left out.
  const bool for_another_node = from.node != deps_.node;
  query.deadline = deps_.clock.Now() + PatienceOf(asked.message) / (for_another_node ? 2 : 1);
  if (asked.message.what() == proto::StateQuery::STACKS) {
    // A process that is silent is found out about behind its time.
    query.stacks_until = deps_.clock.Now() + deps_.limit;
    query.deadline = query.stacks_until + deps_.limit * (for_another_node ? 1 : 2);
  }
  asked.answer.set_request(asked.message.request());
  rows_.Fill(asked);
  AskProcesses(number, query);
  AskEvents(number, query);
  if (!for_another_node) {
    if (!asked.message.this_node()) AskNodes(number, query);
    AskGcs(number, query);
  }
  FinishIfComplete(number);
  return absl::OkStatus();
}

Nanos StateQueries::PatienceOf(const proto::StateQuery& message) const {
  if (message.what() != proto::StateQuery::DIGEST || message.patience_ms() == 0) return deps_.limit;
  return std::min(deps_.limit, message.patience_ms() * kMillisecond);
}

void StateQueries::AskProcesses(uint64_t number, Query& query) {
  proto::StateQuery question = query.asked.message;
  question.set_request(number);
  question.set_limit(query.asked.limit);
  if (question.what() == proto::StateQuery::WHY) {
    const auto id = ObjectId::FromHex(question.id());
    if (id.ok() && deps_.processes.contains(id->maker())) query.waits_for.insert(id->maker());
  } else if (question.what() == proto::StateQuery::STACKS) {
    for (const auto& row : query.asked.answer.stacks())
      query.waits_for.insert(ProcessId::Unpack(row.process()));
  } else if (WantsProcesses(question.what())) {
    for (const auto& [process, entry] : deps_.processes) {
      if (entry.info.role != ProcessRole::kTool) query.waits_for.insert(process);
    }
  }
  for (const ProcessId process : query.waits_for) {
    SendMessage(To(process), FrameKind::kStateQuery, question);
  }
}

void StateQueries::AskNodes(uint64_t number, Query& query) {
  const proto::StateQuery& question = query.asked.message;
  if (question.what() == proto::StateQuery::WHY) {
    const auto id = ObjectId::FromHex(question.id());
    if (id.ok()) query.nodes_to_ask.push_back(id->maker().node);
  } else if (question.what() == proto::StateQuery::STACKS ||
             question.what() == proto::StateQuery::PROFILE) {
    if (!AddAskedNode(query)) return;
  } else if (question.node() != 0) {
    query.nodes_to_ask.push_back(question.node());
  }
  if (query.nodes_to_ask.empty() && question.what() != proto::StateQuery::WHY &&
      WantsNodes(question.what())) {
    for (const auto& [node, seen] : deps_.view.nodes) query.nodes_to_ask.push_back(node);
  }
  AskSomeNodes(number, query);
}

namespace {

// Each node learns of its own cursor alone.
void KeepCursorOf(NodeNumber node, const proto::StateQuery& from, proto::StateQuery& to) {
  to.clear_cursors();
  for (const proto::DigestCursor& cursor : from.cursors()) {
    if (cursor.node() == node) *to.add_cursors() = cursor;
  }
}

// What a raylet says of its node, and what is remembered there of calls, are one row.
void CompleteDigest(NodeNumber node, proto::StateAnswer& calls, proto::StateAnswer& answer) {
  if (calls.digests_size() == 0) return;
  for (proto::NodeDigest& digest : *answer.mutable_digests()) {
    if (digest.node() == node) digest.MergeFrom(calls.digests(0));
  }
  calls.clear_digests();
}

}  // namespace

void StateQueries::AskSomeNodes(uint64_t number, Query& query) {
  if (query.nodes_to_ask.empty()) return;
  proto::StateQuery question = query.asked.message;
  question.set_request(number);
  question.set_limit(query.asked.limit);
  question.set_this_node(true);
  auto under_way = std::count_if(query.waits_for.begin(), query.waits_for.end(),
                                 [](ProcessId process) { return process.is_raylet(); });
  while (!query.nodes_to_ask.empty() && static_cast<size_t>(under_way) < kNodesAskedAtOnce) {
    const NodeNumber node = query.nodes_to_ask.front();
    query.nodes_to_ask.pop_front();
    const NodeView* seen = deps_.view.Find(node);
    if (node == deps_.node || seen == nullptr || !seen->alive) continue;
    query.waits_for.insert(RayletOf(node));
    KeepCursorOf(node, query.asked.message, question);
    SendMessage(To(RayletOf(node)), FrameKind::kStateQuery, question);
    ++under_way;
  }
}

void StateQueries::AskEvents(uint64_t number, Query& query) {
  const proto::StateQuery& question = query.asked.message;
  const bool wants = question.what() == proto::StateQuery::FUNCTIONS ||
                     (question.what() == proto::StateQuery::TASKS && question.ended()) ||
                     ((question.what() == proto::StateQuery::SERIES ||
                       question.what() == proto::StateQuery::PROFILE ||
                       question.what() == proto::StateQuery::DIGEST) &&
                      (question.node() == 0 || question.node() == deps_.node));
  if (!wants || deps_.task_events == nullptr) return;
  query.waits_for_events = true;
  proto::StateQuery mine = question;
  KeepCursorOf(deps_.node, question, mine);
  deps_.task_events->Ask(mine, query.asked.limit, [this, number](proto::StateAnswer answer) {
    OnEvents(number, std::move(answer));
  });
}

void StateQueries::OnEvents(uint64_t number, proto::StateAnswer answer) {
  const auto it = queries_.find(number);
  if (it == queries_.end() || !std::exchange(it->second.waits_for_events, false)) return;
  for (proto::SeriesRow& row : *answer.mutable_series()) row.set_node(deps_.node);
  CompleteDigest(deps_.node, answer, it->second.asked.answer);
  Merge(answer, it->second.asked);
  FinishIfComplete(number);
}

absl::Status StateQueries::OnAnswer(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::StateAnswer>(frame));
  if (logs_.OnAnswer(from, message)) return absl::OkStatus();
  const auto it = queries_.find(message.request());
  if (it == queries_.end() || it->second.waits_for.erase(from) == 0) return absl::OkStatus();
  if (it->second.asked.message.what() == proto::StateQuery::WHY && !from.is_raylet())
    rows_.AddReason(from, message);
  Merge(message, it->second.asked);
  if (it->second.asked.message.what() == proto::StateQuery::STACKS)
    AddStacks(from, message, it->second.asked);
  AskSomeNodes(it->first, it->second);
  FinishIfComplete(it->first);
  return absl::OkStatus();
}

void StateQueries::Merge(proto::StateAnswer& message, StateAsked& asked) {
  if (message.truncated()) asked.answer.set_truncated(true);
  asked.answer.set_events_lost(asked.answer.events_lost() + message.events_lost());
  MergeFunctions(message.functions(), asked);
  MergeDemand(message.demand(), asked);
  MergeProfile(message.profile(), asked);
  if (asked.message.ended()) MergeEnded(message.mutable_tasks(), asked);
  RowBudget budget(asked);
  if (!asked.message.ended()) budget.Append(message.mutable_tasks(), asked.answer.mutable_tasks());
  budget.Append(message.mutable_series(), asked.answer.mutable_series());
  budget.Append(message.mutable_process_figures(), asked.answer.mutable_process_figures());
  if (asked.message.what() == proto::StateQuery::SERIES && asked.answer.error().empty()) {
    asked.answer.set_error(message.error());
  }
  budget.Append(message.mutable_objects(), asked.answer.mutable_objects());
  if (asked.message.what() == proto::StateQuery::ACTORS) {
    AppendPids(message.mutable_workers(), asked);
  } else {
    budget.Append(message.mutable_workers(), asked.answer.mutable_workers());
  }
  AppendNewGroups(message.mutable_groups(), asked);
  AppendNewActors(message.mutable_actors(), asked);
  budget.Append(message.mutable_digests(), asked.answer.mutable_digests());
  MergeCounts(message.counts(), asked.answer);
  if (!message.words().empty() &&
      message.words().size() + asked.answer.words().size() < kMaxWords) {
    // The owner's word first: it knows what the task itself waits for.
    std::string words = message.words();
    if (!asked.answer.words().empty()) absl::StrAppend(&words, "\n", asked.answer.words());
    asked.answer.set_words(words);
  }
}

namespace {

// Of the id of WHY, where nobody has said more. `ended`: what it means that its maker has no more of
// it.
void SayWhy(StateAsked& asked, const char* ended) {
  proto::StateAnswer& answer = asked.answer;
  const bool made = std::any_of(answer.counts().begin(), answer.counts().end(),
                                [](const auto& row) { return row.key() == telemetry::kWhyMade; });
  answer.clear_counts();
  if (!answer.words().empty()) return;
  if (made) return answer.set_words(ended);
  answer.set_error(absl::StrCat("nothing here and on the node of its owner is named '",
                                asked.message.id(), "'; its owner may have ended"));
}

}  // namespace

void StateQueries::TellLate(Query& query) {
  for (const ProcessId process : query.waits_for) {
    if (process.is_raylet()) query.asked.answer.add_late_nodes(process.node);
  }
  for (const NodeNumber node : query.nodes_to_ask) query.asked.answer.add_late_nodes(node);
}

// The order is kept for the GCS. A node that is to leave need not wait for it: the others hear of it
// late, and what they send here meanwhile goes on to where there is room.
void StateQueries::DrainWithoutGcs(StateAsked& asked) const {
  if (asked.message.id() != absl::StrCat(deps_.node)) {
    asked.answer.set_error("the GCS does not answer; the node will drain when it does");
    return;
  }
  deps_.drain_here();
  asked.answer.set_error(
      "the GCS does not answer: this node takes no new work from now on, and the others hear of it "
      "when it does");
}

void StateQueries::Tick() {
  logs_.Tick();
  std::vector<uint64_t> late, silent;
  const Nanos now = deps_.clock.Now();
  for (auto& [number, query] : queries_) {
    if (now >= query.deadline) {
      late.push_back(number);
    } else if (query.stacks_until != 0 && now >= query.stacks_until) {
      silent.push_back(number);
    }
  }
  for (const uint64_t number : silent) {
    AskKernel(number, queries_.at(number));
    FinishIfComplete(number);
  }
  for (const uint64_t number : late) {
    Query& query = queries_.at(number);
    query.asked.answer.set_truncated(true);
    TellLate(query);
    query.waits_for.clear();
    query.nodes_to_ask.clear();
    if (query.waits_for_gcs && query.asked.message.what() == proto::StateQuery::DRAIN) {
      DrainWithoutGcs(query.asked);
    }
    if (query.waits_for_gcs && query.asked.message.what() == proto::StateQuery::STATUS) {
      query.asked.answer.set_words(
          "gives no answer: nodes that it knows are not shown, and who asks it waits");
    }
    if (query.waits_for_gcs && query.asked.message.what() == proto::StateQuery::WHY) {
      SayWhy(query.asked,
             "it has ended, unless it is a detached actor: the GCS, which knows those, does not "
             "answer");
    }
    query.waits_for_gcs = query.waits_for_events = query.waits_for_kernel = false;
    query.stacks_until = 0;
    FinishIfComplete(number);
  }
}

void StateQueries::Forget(ProcessId process) {
  logs_.Forget(process);
  std::vector<uint64_t> touched;
  for (auto& [number, query] : queries_) {
    if (query.waits_for.erase(process) == 0) continue;
    if (query.asked.message.what() == proto::StateQuery::STACKS)
      SayOfProcess(process, kEndedMeanwhile, query.asked);
    AskSomeNodes(number, query);
    touched.push_back(number);
  }
  for (const uint64_t number : touched) FinishIfComplete(number);
}

void StateQueries::FinishIfComplete(uint64_t number) {
  const auto it = queries_.find(number);
  if (it == queries_.end()) return;
  if (it->second.stacks_until != 0 && !WaitsForProcesses(it->second)) AskKernel(number, it->second);
  if (!it->second.waits_for.empty() || !it->second.nodes_to_ask.empty() ||
      it->second.waits_for_gcs || it->second.waits_for_events || it->second.waits_for_kernel)
    return;
  Query query = std::move(it->second);
  queries_.erase(it);
  const bool for_another_node = query.asker.node != deps_.node;
  if (for_another_node ? deps_.is_node_dead(query.asker.node)
                       : !deps_.processes.contains(query.asker))
    return;
  if (!for_another_node) rows_.FillWithoutGcs(query.asked);
  if (!for_another_node && query.asked.message.what() == proto::StateQuery::ACTORS)
    GivePids(query.asked.answer);
  AppendGroupsOfGcs(query.groups, query.asked);
  // Not before: the GCS may not know yet that one waits no more.
  if (query.asked.message.what() == proto::StateQuery::DEMAND && !for_another_node) {
    KeepWaiting(query.asked.answer);
  }
  if (query.asked.message.what() == proto::StateQuery::WHY && !for_another_node)
    SayWhy(query.asked, "it has ended");
  SendMessage(To(query.asker), FrameKind::kStateAnswer, query.asked.answer);
}

}  // namespace sheaf
