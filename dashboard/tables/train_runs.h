// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The runs of sheaf.train, which keeps records of them among the GCS's keys:
// python_bindings/sheaf/util/train_run_store.py.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "dashboard/asker.h"
#include "dashboard/tables/cells.h"

namespace sheaf::dashboard {

inline constexpr char kTrainRuns[] = "train-runs";  // As `sheaf list` calls them.

// One row each, the newest first. A record that cannot be read has a row that says so; a run that has
// not ended and whose driver is gone is ABORTED. kUnavailable: no answer in time. Blocks.
absl::StatusOr<Listing> ListTrainRuns(const AskNode& ask, Nanos timeout);

// {"rows":[the row],"group":{ranks},"history":{attempts, events, series}}. kNotFound: there is no run
// with this id. kUnavailable: as above. Blocks.
absl::StatusOr<std::string> TrainRunJson(const AskNode& ask, const std::string& id, Nanos timeout);

}  // namespace sheaf::dashboard
