// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What waits for a node that the GCS chooses itself, so that no raylet has it in its queue. Pure.
#pragma once

#include <cstdint>

#include "gcs/actors/actor_table.h"
#include "gcs/submissions/submission_table.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// By shape, with words of the first of each.
proto::DemandList DemandOf(const ActorTable& actors, const SubmissionTable& submissions);

// Of these, how many no node could ever take.
uint64_t InfeasibleActors(const ActorTable& actors);
uint64_t InfeasibleSubmissions(const SubmissionTable& submissions);

}  // namespace sheaf
