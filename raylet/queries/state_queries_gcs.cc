// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS is asked for a query, its answer, and what it says of itself.
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "raylet/queries/merge_rows.h"
#include "raylet/queries/row_budget.h"
#include "raylet/queries/state_queries.h"

namespace sheaf {
namespace {

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

// Of KEY_VALUE: all that who may use the node's socket may ask the GCS.
bool IsForTools(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kKvList:
    case R::kKvGet:
    case R::kKvPut:
    case R::kKvExists:
    case R::kKvDelete:
    case R::kSubmitEntrypoint:
    case R::kGetSubmission:
    case R::kListSubmissions:
    case R::kStopSubmission:
    case R::kDeleteSubmission:
      return true;
    default:
      return false;
  }
}

// What the GCS is asked; no body: it knows no more. kInvalidArgument: what is wrong with `asked`.
absl::StatusOr<proto::GcsRequest> RequestFor(const StateAsked& asked) {
  proto::GcsRequest request;
  switch (asked.message.what()) {
    case proto::StateQuery::DRAIN: {
      uint32_t node = 0;
      if (!absl::SimpleAtoi(asked.message.id(), &node) || node == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", absl::CHexEscape(asked.message.id()),
                         "' is no node number: want one that sheaf list nodes prints, such as 2"));
      }
      request.mutable_unregister_node()->set_drain_only(true);
      request.mutable_unregister_node()->set_node(node);
      break;
    }
    case proto::StateQuery::KEY_VALUE: {
      proto::GcsRequest asked_gcs;
      if (asked_gcs.ParseFromString(asked.message.key_value())) {
        if (IsForTools(asked_gcs.body_case())) request = std::move(asked_gcs);
      }
      if (request.body_case() == proto::GcsRequest::BODY_NOT_SET) {
        return absl::InvalidArgumentError(
            "want a question about keys or submissions, or a change of them");
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
    case proto::StateQuery::GROUPS:
    case proto::StateQuery::DEMAND:
      request.mutable_list_groups();
      break;
    case proto::StateQuery::EVENTS:
      *request.mutable_list_events()->mutable_filters() = asked.message.filters();
      request.mutable_list_events()->set_after(asked.message.after());
      request.mutable_list_events()->set_limit(asked.limit);
      break;
    case proto::StateQuery::WHY: {  // A detached actor is known to none but it and its node.
      const auto id = ActorId::FromHex(asked.message.id());
      if (id.ok() && asked.answer.words().empty())
        request.mutable_lookup_actor()->set_actor_id(id->Binary());
      break;
    }
    default:
      break;
  }
  return request;
}

// Of an actor that the GCS starts, or that has ended; of others their creators know more.
std::string WhyActor(const proto::ActorInfo& actor) {
  const std::string name = absl::StrCat("the ", actor.detached() ? "detached " : "", "actor");
  switch (actor.state()) {
    case proto::ActorInfo::DEAD:
      return absl::StrCat(name, " is dead", actor.death().message().empty() ? "" : ": ",
                          actor.death().message());
    case proto::ActorInfo::ALIVE:
      return actor.detached() ? absl::StrCat(name, " is alive") : "";
    default:
      if (!actor.detached()) return "";
      return absl::StrCat(name, " waits for: ", actor.words().empty() ? "a node" : actor.words());
  }
}

}  // namespace

void StateQueries::AskGcs(uint64_t number, Query& query) {
  absl::StatusOr<proto::GcsRequest> request = RequestFor(query.asked);
  if (!request.ok()) {
    query.asked.answer.set_error(std::string(request.status().message()));
    return;
  }
  if (request->body_case() == proto::GcsRequest::BODY_NOT_SET) return;
  query.waits_for_gcs = true;
  // A question whose asker is gone long before there is an answer is not kept; an order is.
  if (!deps_.gcs.up() && query.asked.message.what() != proto::StateQuery::DRAIN) return;
  deps_.gcs.Command(*std::move(request),
                    [this, number](const proto::GcsReply& reply) { OnGcsReply(number, reply); });
}

void StateQueries::MergeGcs(const proto::GcsReply& reply, StateAsked& asked) const {
  proto::StateAnswer& answer = asked.answer;
  RowBudget budget(asked);
  if (asked.message.what() == proto::StateQuery::DRAIN && reply.error() != 0) {
    answer.set_error(reply.message());
  }
  if (asked.message.what() == proto::StateQuery::KEY_VALUE)
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
    row.set_is_head(node.is_head());
    row.set_start_time_unix_s(node.start_time_unix_s());
    row.set_version(node.version());
    if (node.node() == deps_.node) rows_.FillAvailable(&row);
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
    row.set_end_time_unix_s(job.end_time_unix_s());
    row.set_metadata(job.start().metadata());
    budget.Count(row);
  }
  for (const proto::EventRow& event : reply.events().events()) {
    if (!budget.HasRoom(answer.events())) break;
    budget.Count(event);
    *answer.add_events() = event;
  }
  answer.set_matching(reply.events().matching());
  if (const std::string words = WhyActor(reply.actor()); reply.has_actor() && !words.empty()) {
    answer.set_words(absl::StrCat(answer.words(), answer.words().empty() ? "" : "\n", words));
  }
  google::protobuf::RepeatedPtrField<proto::ActorRow> actors = reply.actors().actors();
  AppendNewActors(&actors, asked);
}

void StateQueries::OnGcsReply(uint64_t number, const proto::GcsReply& reply) {
  const auto it = queries_.find(number);
  if (it == queries_.end()) return;
  MergeGcs(reply, it->second.asked);
  it->second.groups = reply.groups();
  switch (it->second.asked.message.what()) {
    case proto::StateQuery::STATUS:
      return AskGcsOfItself(number);
    case proto::StateQuery::DEMAND:
      return AskGcsForDemand(number);
    default:
      it->second.waits_for_gcs = false;
      FinishIfComplete(number);
  }
}

void StateQueries::AskGcsOfItself(uint64_t number) {
  proto::GcsRequest request;
  request.mutable_describe_cluster();
  deps_.gcs.Command(std::move(request), [this, number](const proto::GcsReply& itself) {
    const auto query = queries_.find(number);
    if (query == queries_.end()) return;
    if (itself.cluster().read_only()) {
      query->second.asked.answer.set_words(
          "READ-ONLY, as its disk is full: names, detached actors, jobs and keys cannot change; "
          "free some space there");
    }
    AskGcsForDemand(number);
  });
}

// The GCS places detached actors and submissions itself: what waits of them is in no raylet's queue.
void StateQueries::AskGcsForDemand(uint64_t number) {
  proto::GcsRequest request;
  request.mutable_list_demand();
  deps_.gcs.Command(std::move(request), [this, number](const proto::GcsReply& reply) {
    const auto query = queries_.find(number);
    if (query == queries_.end()) return;
    query->second.waits_for_gcs = false;
    MergeDemand(reply.demand().demand(), query->second.asked);
    if (reply.demand().more()) query->second.asked.answer.set_truncated(true);
    FinishIfComplete(number);
  });
}

}  // namespace sheaf
