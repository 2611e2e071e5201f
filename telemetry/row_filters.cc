// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/row_filters.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sheaf::telemetry {
namespace {

std::string FieldOf(const proto::TaskRow& row, const std::string& key) {
  if (key == "task_id") return row.task_id();
  if (key == "name") return row.name();
  if (key == "state") return row.state();
  if (key == "job") return absl::StrCat(row.job());
  if (key == "actor_id") return row.actor_id();
  if (key == "type") return row.type();
  if (key == "error_type") return row.error_type();
  return "";
}

}  // namespace

bool FiltersHold(const proto::TaskRow& row,
                 const google::protobuf::RepeatedPtrField<proto::StateFilter>& filters) {
  return std::all_of(filters.begin(), filters.end(), [&](const proto::StateFilter& filter) {
    return absl::EqualsIgnoreCase(FieldOf(row, filter.key()), filter.value()) != filter.not_equal();
  });
}

bool MayHold(std::string_view key, std::string_view value,
             const google::protobuf::RepeatedPtrField<proto::StateFilter>& filters) {
  return std::all_of(filters.begin(), filters.end(), [&](const proto::StateFilter& filter) {
    if (filter.key() != key) return true;
    const absl::string_view text(value.data(), value.size());
    return absl::EqualsIgnoreCase(text, filter.value()) != filter.not_equal();
  });
}

int64_t UnixMs(uint32_t ms, Nanos near) {
  if (ms == 0) return 0;
  const int64_t near_ms = near / kMillisecond;
  return near_ms - static_cast<int32_t>(static_cast<uint32_t>(near_ms) - ms);
}

}  // namespace sheaf::telemetry
