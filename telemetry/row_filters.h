// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which rows of calls a question wants, for those who make them: owners, workers, and the history.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "proto/raylet.pb.h"

namespace sheaf::telemetry {

using Filters = google::protobuf::RepeatedPtrField<proto::StateFilter>;

// Whether all of `filters` hold of `row`. Values are compared as text, in any case. Keys are names of
// fields, and `node` of a worker; processes are "3.17". What changes of an actor or a group is no key:
// several know of one, and whoever knows the latest may be another one than who was asked.
bool FiltersHold(const proto::TaskRow& row, const Filters& filters);
bool FiltersHold(const proto::ActorRow& row, const Filters& filters);
bool FiltersHold(const proto::ObjectRow& row, const Filters& filters);
bool FiltersHold(const proto::WorkerRow& row, const Filters& filters);
bool FiltersHold(const proto::GroupRow& row, const Filters& filters);

// The same of a row of which only one field is known yet: false where FiltersHold will be, whatever
// else is in it. A row costs more than its fields.
bool MayHold(std::string_view key, std::string_view value, const Filters& filters);

// The time, in milliseconds since 1970, whose last 32 bits are `ms` (Clock::CoarseUnixMs) and that is
// next to `near`, a wall time. 0: 0.
int64_t UnixMs(uint32_t ms, Nanos near);

}  // namespace sheaf::telemetry
