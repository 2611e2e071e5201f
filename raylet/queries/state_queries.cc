// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the command line and the `list` functions ask: answered from this raylet's own state
// (raylet_state_rows.cc), from the GCS where it knows more, from the owners on this node, who alone
// know their tasks and objects, and from the other raylets, which ask theirs. Who does not answer
// in time is left out.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "raylet/raylet.h"
#include "raylet/row_budget.h"

namespace sheaf {
namespace {

constexpr uint32_t kDefaultLimit = 10'000;
constexpr size_t kMaxNodesAsked = 256;  // Of one query; the rows of more are cut anyway.
constexpr size_t kMaxOpenQueries = 256;
constexpr size_t kMaxWords = 1 << 20;

constexpr auto kActorId = [](const proto::ActorRow& row) -> const std::string& {
  return row.actor_id();
};
constexpr auto kGroupId = [](const proto::GroupRow& row) -> const std::string& {
  return row.group_id();
};

// Those rows whose id is not among `to` yet: several may know of an actor, or of a placement group.
template <class Rows, class Id>
void AppendNew(Rows* from, Rows* to, Id id, RowBudget* budget) {
  absl::btree_set<std::string> known;
  for (const auto& row : *to) known.insert(id(row));
  for (auto it = from->begin(); it != from->end();) {
    it = known.contains(id(*it)) ? from->erase(it) : it + 1;
  }
  budget->Append(from, to);
}

const char* StateName(const proto::NodeInfo& node) {
  switch (node.state()) {
    case proto::NodeInfo::ALIVE:
      return "ALIVE";
    case proto::NodeInfo::DRAINING:
      return node.drained() ? "DRAINED" : "DRAINING";
    default:
      return "DEAD";
  }
}

const char* StateName(proto::JobInfo::State state) {
  switch (state) {
    case proto::JobInfo::RUNNING:
      return "RUNNING";
    case proto::JobInfo::FINISHED:
      return "FINISHED";
    default:
      return "FAILED";
  }
}

bool WantsProcesses(proto::StateQuery::What what) {
  return what == proto::StateQuery::ACTORS || what == proto::StateQuery::TASKS ||
         what == proto::StateQuery::OBJECTS;
}

bool WantsNodes(proto::StateQuery::What what) {
  return WantsProcesses(what) || what == proto::StateQuery::GROUPS ||
         what == proto::StateQuery::WORKERS;
}

}  // namespace

absl::Status Raylet::OnStateQuery(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::StateQuery>(frame));
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
  query.message = std::move(message);
  query.limit =
      std::min(query.message.limit() == 0 ? kDefaultLimit : query.message.limit(), kMaxStateRows);
  // Who asks for its own askers leaves them time to hear of what was left out.
  const bool for_another_node = from.node != options_.node;
  query.deadline = Now() + options_.query_limit / (for_another_node ? 2 : 1);
  query.answer.set_request(query.message.request());
  FillFromHere(&query);
  AskProcesses(number, &query);
  if (!for_another_node) {
    if (!query.message.this_node()) AskNodes(number, &query);
    AskGcs(number, &query);
  }
  FinishQuery(number);
  return absl::OkStatus();
}

void Raylet::AskProcesses(uint64_t number, Query* query) {
  proto::StateQuery question = query->message;
  question.set_request(number);
  question.set_limit(query->limit);
  if (question.what() == proto::StateQuery::WHY) {
    const auto id = ObjectId::FromHex(question.id());
    if (id.ok() && IsAlive(id->maker())) query->asked.insert(id->maker());
  } else if (WantsProcesses(question.what())) {
    for (const auto& [process, entry] : processes_) {
      if (entry.info.role != ProcessRole::kTool) query->asked.insert(process);
    }
  }
  for (const ProcessId process : query->asked) {
    SendMessage(To(process), FrameKind::kStateQuery, question);
  }
}

void Raylet::AskNodes(uint64_t number, Query* query) {
  proto::StateQuery question = query->message;
  question.set_request(number);
  question.set_limit(query->limit);
  question.set_this_node(true);
  std::vector<NodeNumber> nodes;
  if (question.what() == proto::StateQuery::WHY) {
    const auto id = ObjectId::FromHex(question.id());
    if (id.ok()) nodes.push_back(id->maker().node);
  } else if (WantsNodes(question.what())) {
    for (const auto& [node, seen] : view_.nodes) nodes.push_back(node);
  }
  for (const NodeNumber node : nodes) {
    const NodeView* seen = view_.Find(node);
    if (node == options_.node || seen == nullptr || !seen->alive) continue;
    if (query->asked.size() >= kMaxNodesAsked) {
      query->answer.set_truncated(true);
      return;
    }
    query->asked.insert(RayletOf(node));
    SendMessage(To(RayletOf(node)), FrameKind::kStateQuery, question);
  }
}

void Raylet::AskGcs(uint64_t number, Query* query) {
  proto::GcsRequest request;
  switch (query->message.what()) {
    case proto::StateQuery::DRAIN: {
      uint32_t node = 0;
      if (!absl::SimpleAtoi(query->message.id(), &node) || node == 0) {
        query->answer.set_error(
            absl::StrCat("'", absl::CHexEscape(query->message.id()),
                         "' is no node number: want one that sheaf list nodes prints, such as 2"));
        return;
      }
      request.mutable_unregister_node()->set_drain_only(true);
      request.mutable_unregister_node()->set_node(node);
      break;
    }
    case proto::StateQuery::KEY_VALUE: {
      proto::GcsRequest asked;
      if (asked.ParseFromString(query->message.key_value())) {
        if (asked.has_kv_list()) *request.mutable_kv_list() = asked.kv_list();
        if (asked.has_kv_get()) *request.mutable_kv_get() = asked.kv_get();
        if (asked.has_kv_delete()) *request.mutable_kv_delete() = asked.kv_delete();
      }
      if (request.body_case() == proto::GcsRequest::BODY_NOT_SET) {
        query->answer.set_error("want a question about keys: a list, one to get, or to delete");
        return;
      }
      break;
    }
    case proto::StateQuery::NODES:
    case proto::StateQuery::STATUS:
      request.mutable_list_nodes();
      break;
    case proto::StateQuery::JOBS:
      request.mutable_list_jobs();
      break;
    case proto::StateQuery::ACTORS:
      request.mutable_list_actors()->set_all_name_spaces(true);
      break;
    case proto::StateQuery::WHY: {  // A detached actor that no node has.
      const auto id = ActorId::FromHex(query->message.id());
      if (!id.ok() || !query->answer.words().empty()) return;
      request.mutable_lookup_actor()->set_actor_id(id->Binary());
      break;
    }
    default:
      return;
  }
  query->asks_gcs = true;
  // A question whose asker is gone long before there is an answer is not kept; an order is.
  if (!gcs_.up() && query->message.what() != proto::StateQuery::DRAIN) return;
  gcs_.Command(std::move(request), [this, number](const proto::GcsReply& reply) {
    const auto it = queries_.find(number);
    if (it == queries_.end()) return;
    MergeGcs(reply, &it->second);
    if (it->second.message.what() != proto::StateQuery::STATUS) {
      it->second.asks_gcs = false;
      return FinishQuery(number);
    }
    // And how it is itself.
    proto::GcsRequest more;
    more.mutable_describe_cluster();
    gcs_.Command(std::move(more), [this, number](const proto::GcsReply& itself) {
      const auto query = queries_.find(number);
      if (query == queries_.end()) return;
      query->second.asks_gcs = false;
      if (itself.cluster().read_only()) {
        query->second.answer.set_words(
            "READ-ONLY, as its disk is full: names, detached actors, jobs and keys cannot change; "
            "free some space there");
      }
      FinishQuery(number);
    });
  });
}

void Raylet::MergeGcs(const proto::GcsReply& reply, Query* query) {
  proto::StateAnswer& answer = query->answer;
  RowBudget budget(answer, query->limit);
  if (query->message.what() == proto::StateQuery::DRAIN && reply.error() != 0) {
    answer.set_error(reply.message());
  }
  if (query->message.what() == proto::StateQuery::KEY_VALUE)
    answer.set_key_value(reply.SerializeAsString());
  for (const proto::NodeInfo& node : reply.nodes().nodes()) {
    if (!budget.HasRoom(answer.nodes())) break;
    proto::NodeRow& row = *answer.add_nodes();
    row.set_node(node.node());
    row.set_address(node.address());
    row.set_state(StateName(node));
    *row.mutable_total() = node.total();
    *row.mutable_available() = node.available();
    *row.mutable_labels() = node.labels();
    row.set_host_name(node.host_name());
    row.set_metrics_url(node.metrics_url());
    row.set_start_time_unix_s(node.start_time_unix_s());
    row.set_version(node.version());
    if (node.node() == options_.node) FillAvailable(&row);
    budget.Count(row);
  }
  for (const proto::JobInfo& job : reply.jobs().jobs()) {
    if (!budget.HasRoom(answer.jobs())) break;
    proto::JobRow& row = *answer.add_jobs();
    row.set_job(job.job());
    row.set_driver(job.driver());
    row.set_os_pid(job.os_pid());
    row.set_name_space(job.start().name_space());
    row.set_entrypoint(job.start().entrypoint());
    row.set_state(StateName(job.state()));
    row.set_start_time_unix_s(job.start_time_unix_s());
    budget.Count(row);
  }
  if (reply.has_actor() && !reply.actor().words().empty()) {
    answer.set_words(absl::StrCat(answer.words(), answer.words().empty() ? "" : "\n",
                                  "the detached actor waits for: ", reply.actor().words()));
  }
  google::protobuf::RepeatedPtrField<proto::ActorRow> actors = reply.actors().actors();
  AppendNew(&actors, answer.mutable_actors(), kActorId, &budget);
}

absl::Status Raylet::OnStateAnswer(ProcessId from, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(auto message, ParseFrame<proto::StateAnswer>(frame));
  const auto it = queries_.find(message.request());
  if (it == queries_.end() || it->second.asked.erase(from) == 0) return absl::OkStatus();
  Query& query = it->second;
  if (message.truncated()) query.answer.set_truncated(true);
  RowBudget budget(query.answer, query.limit);
  budget.Append(message.mutable_tasks(), query.answer.mutable_tasks());
  budget.Append(message.mutable_objects(), query.answer.mutable_objects());
  budget.Append(message.mutable_workers(), query.answer.mutable_workers());
  AppendNew(message.mutable_groups(), query.answer.mutable_groups(), kGroupId, &budget);
  AppendNew(message.mutable_actors(), query.answer.mutable_actors(), kActorId, &budget);
  if (!message.words().empty() &&
      message.words().size() + query.answer.words().size() < kMaxWords) {
    // The owner's word first: it knows what the task itself waits for.
    std::string words = message.words();
    if (!query.answer.words().empty()) absl::StrAppend(&words, "\n", query.answer.words());
    query.answer.set_words(words);
  }
  FinishQuery(it->first);
  return absl::OkStatus();
}

void Raylet::CheckQueries() {
  std::vector<uint64_t> late;
  for (const auto& [number, query] : queries_) {
    if (Now() >= query.deadline) late.push_back(number);
  }
  for (const uint64_t number : late) {
    Query& query = queries_.at(number);
    query.answer.set_truncated(true);
    query.asked.clear();
    if (query.asks_gcs && query.message.what() == proto::StateQuery::DRAIN) {
      query.answer.set_error("the GCS does not answer; the node will drain when it does");
    }
    if (query.asks_gcs && query.message.what() == proto::StateQuery::STATUS) {
      query.answer.set_words(
          "gives no answer: nodes that it knows are not shown, and who asks it waits");
    }
    query.asks_gcs = false;
    FinishQuery(number);
  }
}

void Raylet::DropFromQueries(ProcessId process) {
  std::vector<uint64_t> touched;
  for (auto& [number, query] : queries_) {
    if (query.asked.erase(process) > 0) touched.push_back(number);
  }
  for (const uint64_t number : touched) FinishQuery(number);
}

void Raylet::FinishQuery(uint64_t number) {
  const auto it = queries_.find(number);
  if (it == queries_.end() || !it->second.asked.empty() || it->second.asks_gcs) return;
  Query query = std::move(it->second);
  queries_.erase(it);
  const bool for_another_node = query.asker.node != options_.node;
  if (for_another_node ? IsNodeDead(query.asker.node) : !IsAlive(query.asker)) return;
  if (!for_another_node) FillWithoutGcs(&query);
  if (query.message.what() == proto::StateQuery::WHY && query.answer.words().empty() &&
      !for_another_node) {
    query.answer.set_error(absl::StrCat("nothing here and on the node of its owner is named '",
                                        query.message.id(), "'; its owner may have ended"));
  }
  SendMessage(To(query.asker), FrameKind::kStateAnswer, query.answer);
}

}  // namespace sheaf
