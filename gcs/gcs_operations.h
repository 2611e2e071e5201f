// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What each operation of the GCS is: its name for metrics, who may ask for it, and how repeats and recovery treat it.
#pragma once

#include "proto/gcs.pb.h"

namespace sheaf {

struct GcsOperation {
  const char* name = nullptr;   // nullptr: no such operation.
  bool keep_answer = false;     // A command: a repeat gets the first answer.
  bool durable_answer = false;  // Also after a restart: doing it twice would show.
  bool waits_for_reports = false;  // It asks for soft state, which is complete only after the recovery.
  bool raylet_only = false;     // Only in a raylet's own name.
};

constexpr GcsOperation OperationOf(proto::GcsRequest::BodyCase body) {
  using R = proto::GcsRequest;
  switch (body) {
    case R::kRegisterNode: return {.name = "register_node"};  // Idempotent by its nonce.
    case R::kHeartbeat: return {.name = "heartbeat", .raylet_only = true};
    case R::kNodeReport: return {.name = "node_report", .raylet_only = true};
    case R::kUnregisterNode: return {.name = "unregister_node", .keep_answer = true, .raylet_only = true};
    case R::kProcessGone: return {.name = "process_gone", .raylet_only = true};
    case R::kListNodes: return {.name = "list_nodes", .waits_for_reports = true};
    case R::kDescribeCluster: return {.name = "describe_cluster"};
    case R::kRegisterJob: return {.name = "register_job", .keep_answer = true, .durable_answer = true};
    case R::kFinishJob: return {.name = "finish_job", .keep_answer = true};
    case R::kListJobs: return {.name = "list_jobs"};
    case R::kRegisterActor: return {.name = "register_actor", .keep_answer = true, .durable_answer = true};
    case R::kLookupActor: return {.name = "lookup_actor", .waits_for_reports = true};
    case R::kListActors: return {.name = "list_actors", .waits_for_reports = true};
    case R::kActorStateReport:
      return {.name = "actor_state_report", .keep_answer = true, .raylet_only = true};
    case R::kEndActor: return {.name = "end_actor", .keep_answer = true};
    case R::kActorRows: return {.name = "actor_rows", .raylet_only = true};
    case R::kRegisterGroup: return {.name = "register_group", .keep_answer = true, .durable_answer = true};
    case R::kLookupGroup: return {.name = "lookup_group", .waits_for_reports = true};
    case R::kListGroups: return {.name = "list_groups", .waits_for_reports = true};
    case R::kGroupReport: return {.name = "group_report", .keep_answer = true, .raylet_only = true};
    case R::kRemoveGroup: return {.name = "remove_group", .keep_answer = true};
    case R::kPutBlob: return {.name = "put_blob", .keep_answer = true};
    case R::kGetBlob: return {.name = "get_blob"};
    case R::kKvPut: return {.name = "kv_put", .keep_answer = true, .durable_answer = true};
    case R::kKvGet: return {.name = "kv_get"};
    case R::kKvDelete: return {.name = "kv_delete", .keep_answer = true, .durable_answer = true};
    case R::kKvKeys: return {.name = "kv_keys"};
    case R::kKvExists: return {.name = "kv_exists"};
    case R::kSubscribe: return {.name = "subscribe"};
    case R::kUnsubscribe: return {.name = "unsubscribe"};
    case R::BODY_NOT_SET: return {};
  }
  return {};
}

}  // namespace sheaf
