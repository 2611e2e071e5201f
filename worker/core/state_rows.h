// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a process says of itself: the rows of its calls and objects for people who ask, and the
// figures that its page shows. Pure.
#pragma once

#include "metrics/page.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class ProcessCore;

// The answer to a question that the raylet passes on, cut where it gets too long.
proto::StateAnswer AnswerOf(ProcessCore& core, const proto::StateQuery& query);
// Copies what `core` counts for itself into `page`.
void PublishCounts(const ProcessCore& core, metrics::Page& page);

}  // namespace sheaf
