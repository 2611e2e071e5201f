// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What has happened in the cluster, as Ray's listing has it and as Sheaf's own route.
#pragma once

#include "dashboard/asker.h"
#include "dashboard/state_table.h"
#include "http/router.h"

namespace sheaf::dashboard {

struct Answers;

// severity, time, source_type, message, event_id and custom_fields; the oldest first.
StateTable EventTable(const Answers& answers);

// As the route has it.
std::string EventJson(const proto::EventRow& event);

// GET /api/sheaf/events?after=EVENT_ID&limit=N&severity=&kind=&node=&job=&id=: the first ones behind
// that id, else the last ones, the oldest first. `asker` outlives the router.
void AddEventRoutes(http::Router& router, Asker& asker);

}  // namespace sheaf::dashboard
