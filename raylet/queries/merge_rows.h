// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Rows of several nodes as those of one answer, where they are not just put behind each other.
#pragma once

#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "raylet/queries/state_asked.h"

namespace sheaf {

// The rows of ended calls go behind those of the others, the last one first, however many nodes they
// come from; what is beyond the limit are the oldest. Both parts are in that order.
void MergeEnded(google::protobuf::RepeatedPtrField<proto::TaskRow>* rows, StateAsked& asked);

// One row for each function of a job, whichever nodes ran it.
void MergeFunctions(const google::protobuf::RepeatedPtrField<proto::FunctionRow>& rows,
                    StateAsked& asked);

// One row for each shape, whoever has it in a queue; at most kMaxShapes (scheduling/demand_shape.h).
void MergeDemand(const google::protobuf::RepeatedPtrField<proto::DemandRow>& rows,
                 StateAsked& asked);
// Drops the groups that wait for nothing.
void KeepWaiting(proto::StateAnswer& answer);
// One tree, whichever nodes its parts come from. Where it has kMaxProfileNodes, what more there is
// counts as its parents' time.
inline constexpr int kMaxProfileNodes = 50'000;
void MergeProfile(const google::protobuf::RepeatedPtrField<proto::ProfileNode>& rows,
                  StateAsked& asked);

// One row for each key, whoever counted.
void MergeCounts(const google::protobuf::RepeatedPtrField<proto::CountRow>& rows,
                 proto::StateAnswer& answer);
// Those rows that are wanted and whose id is not there yet: several may know of an actor, or of a
// placement group.
void AppendNewActors(google::protobuf::RepeatedPtrField<proto::ActorRow>* rows, StateAsked& asked);
// ACTORS: rows of workers, of which an answer has as many as it has room for. They give its actors
// their pids, and go.
void AppendPids(google::protobuf::RepeatedPtrField<proto::WorkerRow>* rows, StateAsked& asked);
void GivePids(proto::StateAnswer& answer);
void AppendNewGroups(google::protobuf::RepeatedPtrField<proto::GroupRow>* rows, StateAsked& asked);
// Groups that no raylet has spoken of: the node that places one is silent, or none does now. What a
// raylet says of its groups is newer than what the GCS knows.
void AppendGroupsOfGcs(const proto::GroupList& groups, StateAsked& asked);

}  // namespace sheaf
