// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Jobs, placement groups and detached actors of a node, joined as in a raylet. For tests only.
#pragma once

#include <vector>

#include "raylet/jobs/detached_actors.h"
#include "raylet/jobs/jobs.h"
#include "raylet/jobs/placement_group_coordinator.h"
#include "raylet/node_parts_for_test.h"

namespace sheaf {

struct JobParts : NodeParts {
  Jobs jobs{{.options = options,
             .clock = clock,
             .transport = transport,
             .gcs = gcs,
             .launcher = launcher,
             .pool = pool,
             .queue = queue,
             .worker_of = worker_of,
             .processes = processes,
             .deaths = deaths,
             .detached_workers_of = [this](JobNumber job) { return actors.WorkersOf(job); },
             .has_detached_actors = [this](JobNumber job) { return actors.HasAny(job); },
             .on_driver_gone = [this](ProcessId driver) { groups.OnProcessGone(driver); }}};
  PlacementGroupCoordinator groups{{.clock = clock,
                                    .transport = transport,
                                    .gcs = gcs,
                                    .ledger = ledger,
                                    .view = view,
                                    .queue = queue,
                                    .processes = processes,
                                    .deaths = deaths,
                                    .jobs = jobs}};
  std::vector<LeaseNumber> ended;  // What the actors asked for.
  DetachedActors actors{{.clock = clock,
                         .transport = transport,
                         .gcs = gcs,
                         .pool = pool,
                         .queue = queue,
                         .view = view,
                         .processes = processes,
                         .deaths = deaths,
                         .jobs = jobs,
                         .groups = groups,
                         .end_lease = [this](LeaseNumber lease) { ended.push_back(lease); }}};

  // A driver whose job the GCS has numbered.
  ProcessId Driver(JobNumber number = 5) {
    const ProcessId driver = Attach(ProcessRole::kDriver);
    REQUIRE(jobs.OnStart(driver, Of(FrameKind::kJobStart, proto::JobStart())).ok());
    proto::GcsReply reply;
    reply.mutable_job_registered()->set_job(number);
    reply.mutable_job_registered()->set_name_space("space");
    Answer(Asked().at(0), reply);
    return driver;
  }
};

}  // namespace sheaf
