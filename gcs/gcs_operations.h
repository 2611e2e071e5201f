// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What each operation of the GCS is: its name for metrics, who may ask for it, and how repeats and
// recovery treat it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/gcs.pb.h"

namespace sheaf {

enum class GcsTable : uint8_t { kNode, kJob, kActor, kGroup, kKeyValue, kSubscription };
inline constexpr size_t kGcsTables = 6;

struct GcsOperation {
  const char* name = nullptr;  // nullptr: no such operation.
  GcsTable table = GcsTable::kNode;
  bool keep_answer = false;     // A command: a repeat gets the first answer.
  bool durable_answer = false;  // Also after a restart: doing it twice would show.
  bool waits_for_reports =
      false;                 // It asks for soft state, which is complete only after the recovery.
  bool raylet_only = false;  // Only in a raylet's own name.
};

constexpr GcsOperation NodeOperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kRegisterNode:
      return {.name = "register_node"};  // Idempotent by its nonce.
    case R::kHeartbeat:
      return {.name = "heartbeat", .raylet_only = true};
    case R::kNodeReport:
      // A repeat that comes late knows nothing of processes that have attached since.
      return {.name = "node_report", .keep_answer = true, .raylet_only = true};
    case R::kUnregisterNode:
      return {.name = "unregister_node", .keep_answer = true, .raylet_only = true};
    case R::kProcessGone:
      return {.name = "process_gone", .raylet_only = true};
    case R::kListNodes:
      return {.name = "list_nodes", .waits_for_reports = true};
    case R::kDescribeCluster:
      return {.name = "describe_cluster"};
    case R::kReportEvent:
      return {.name = "report_event", .raylet_only = true};
    case R::kListEvents:
      return {.name = "list_events"};
    case R::kListDemand:
      return {.name = "list_demand", .waits_for_reports = true};
    default:
      return {};
  }
}

constexpr GcsOperation SubmissionOperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kSubmitEntrypoint:
      return {.name = "submit_entrypoint",
              .table = GcsTable::kJob,
              .keep_answer = true,
              .durable_answer = true};
    case R::kGetSubmission:
      return {.name = "get_submission", .table = GcsTable::kJob};
    case R::kListSubmissions:
      return {.name = "list_submissions", .table = GcsTable::kJob};
    case R::kStopSubmission:
      return {.name = "stop_submission", .table = GcsTable::kJob, .keep_answer = true};
    case R::kDeleteSubmission:
      return {.name = "delete_submission", .table = GcsTable::kJob, .keep_answer = true};
    case R::kEntrypointReport:
      return {.name = "entrypoint_report",
              .table = GcsTable::kJob,
              .keep_answer = true,
              .raylet_only = true};
    case R::kForgottenSubmissions:
      return {.name = "forgotten_submissions", .table = GcsTable::kJob, .raylet_only = true};
    default:
      return {};
  }
}

constexpr GcsOperation KeyValueOperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kKvPut:
      return {.name = "kv_put",
              .table = GcsTable::kKeyValue,
              .keep_answer = true,
              .durable_answer = true};
    case R::kKvGet:
      return {.name = "kv_get", .table = GcsTable::kKeyValue};
    case R::kKvDelete:
      return {.name = "kv_delete",
              .table = GcsTable::kKeyValue,
              .keep_answer = true,
              .durable_answer = true};
    case R::kKvKeys:
      return {.name = "kv_keys", .table = GcsTable::kKeyValue};
    case R::kKvExists:
      return {.name = "kv_exists", .table = GcsTable::kKeyValue};
    case R::kKvOwn:
      return {.name = "kv_own", .table = GcsTable::kKeyValue, .keep_answer = true};
    case R::kKvList:
      return {.name = "kv_list", .table = GcsTable::kKeyValue};
    default:
      return {};
  }
}

constexpr GcsOperation ActorOperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kRegisterActor:
      return {.name = "register_actor",
              .table = GcsTable::kActor,
              .keep_answer = true,
              .durable_answer = true};
    case R::kLookupActor:
      return {.name = "lookup_actor", .table = GcsTable::kActor, .waits_for_reports = true};
    case R::kListActors:
      return {.name = "list_actors", .table = GcsTable::kActor, .waits_for_reports = true};
    case R::kActorStateReport:
      return {.name = "actor_state_report",
              .table = GcsTable::kActor,
              .keep_answer = true,
              .raylet_only = true};
    case R::kEndActor:
      return {.name = "end_actor", .table = GcsTable::kActor, .keep_answer = true};
    case R::kActorRows:
      return {.name = "actor_rows", .table = GcsTable::kActor, .raylet_only = true};
    default:
      return {};
  }
}

constexpr GcsOperation GroupOperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kRegisterGroup:
      return {.name = "register_group",
              .table = GcsTable::kGroup,
              .keep_answer = true,
              .durable_answer = true};
    case R::kLookupGroup:
      return {.name = "lookup_group", .table = GcsTable::kGroup, .waits_for_reports = true};
    case R::kListGroups:
      return {.name = "list_groups", .table = GcsTable::kGroup, .waits_for_reports = true};
    case R::kGroupReport:
      return {.name = "group_report",
              .table = GcsTable::kGroup,
              .keep_answer = true,
              .raylet_only = true};
    case R::kRemoveGroup:
      return {.name = "remove_group", .table = GcsTable::kGroup, .keep_answer = true};
    default:
      return {};
  }
}

constexpr GcsOperation OperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kRegisterNode:
    case R::kHeartbeat:
    case R::kNodeReport:
    case R::kUnregisterNode:
    case R::kProcessGone:
    case R::kListNodes:
    case R::kDescribeCluster:
    case R::kReportEvent:
    case R::kListEvents:
    case R::kListDemand:
      return NodeOperationOf(body);
    case R::kRegisterJob:
      return {.name = "register_job",
              .table = GcsTable::kJob,
              .keep_answer = true,
              .durable_answer = true};
    case R::kFinishJob:
      return {.name = "finish_job", .table = GcsTable::kJob, .keep_answer = true};
    case R::kListJobs:
      return {.name = "list_jobs", .table = GcsTable::kJob};
    case R::kRegisterActor:
    case R::kLookupActor:
    case R::kListActors:
    case R::kActorStateReport:
    case R::kEndActor:
    case R::kActorRows:
      return ActorOperationOf(body);
    case R::kRegisterGroup:
    case R::kLookupGroup:
    case R::kListGroups:
    case R::kGroupReport:
    case R::kRemoveGroup:
      return GroupOperationOf(body);
    case R::kSubmitEntrypoint:
    case R::kGetSubmission:
    case R::kListSubmissions:
    case R::kStopSubmission:
    case R::kDeleteSubmission:
    case R::kEntrypointReport:
    case R::kForgottenSubmissions:
      return SubmissionOperationOf(body);
    case R::kKvPut:
    case R::kKvGet:
    case R::kKvDelete:
    case R::kKvKeys:
    case R::kKvExists:
    case R::kKvOwn:
    case R::kKvList:
      return KeyValueOperationOf(body);
    case R::kSubscribe:
      return {.name = "subscribe", .table = GcsTable::kSubscription};
    case R::kUnsubscribe:
      return {.name = "unsubscribe", .table = GcsTable::kSubscription};
    case R::BODY_NOT_SET:
      return {};
  }
  return {};
}

}  // namespace sheaf
