// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/row_filters.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"

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

std::string TextOf(uint64_t process) {
  return process == 0 ? "" : ProcessId::Unpack(process).ToString();
}

std::string FieldOf(const proto::ActorRow& row, const std::string& key) {
  if (key == "actor_id") return row.actor_id();
  if (key == "class_name") return row.class_name();
  if (key == "name") return row.name();
  if (key == "name_space") return row.name_space();
  return "";
}

std::string FieldOf(const proto::ObjectRow& row, const std::string& key) {
  if (key == "object_id") return row.object_id();
  if (key == "where") return row.where();
  if (key == "owner") return TextOf(row.owner());
  if (key == "may_leak") return row.may_leak() ? "true" : "false";
  return "";
}

std::string FieldOf(const proto::WorkerRow& row, const std::string& key) {
  if (key == "process") return TextOf(row.process());
  if (key == "node") return absl::StrCat(ProcessId::Unpack(row.process()).node);
  if (key == "os_pid") return absl::StrCat(row.os_pid());
  if (key == "state") return row.state();
  if (key == "job") return absl::StrCat(row.job());
  if (key == "owner") return TextOf(row.owner());
  return "";
}

std::string FieldOf(const proto::GroupRow& row, const std::string& key) {
  if (key == "group_id") return row.group_id();
  if (key == "name") return row.name();
  return "";
}

template <class Row>
bool AllHold(const Row& row, const Filters& filters) {
  return std::all_of(filters.begin(), filters.end(), [&](const proto::StateFilter& filter) {
    return absl::EqualsIgnoreCase(FieldOf(row, filter.key()), filter.value()) != filter.not_equal();
  });
}

}  // namespace

bool FiltersHold(const proto::TaskRow& row, const Filters& filters) {
  return AllHold(row, filters);
}
bool FiltersHold(const proto::ActorRow& row, const Filters& filters) {
  return AllHold(row, filters);
}
bool FiltersHold(const proto::ObjectRow& row, const Filters& filters) {
  return AllHold(row, filters);
}
bool FiltersHold(const proto::WorkerRow& row, const Filters& filters) {
  return AllHold(row, filters);
}
bool FiltersHold(const proto::GroupRow& row, const Filters& filters) {
  return AllHold(row, filters);
}

bool MayHold(std::string_view key, std::string_view value, const Filters& filters) {
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
