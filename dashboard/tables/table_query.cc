// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/table_query.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/message_limits.h"
#include "base/status_macros.h"
#include "dashboard/tables/listing.h"

namespace sheaf::dashboard {
namespace {

constexpr std::array<const char*, 7> kTaskKeys = {"task_id",  "name", "state",     "job",
                                                  "actor_id", "type", "error_type"};
constexpr std::array<const char*, 5> kLiveStates = {"WAITING_FOR_ARGUMENTS", "WAITING_FOR_LEASE",
                                                    "WAITING_FOR_ACTOR", "PUSHED", "RUNNING"};

// A cursor of tasks is a number of live ones before the page, or when the last one ended, which was
// not in the first second of 1970.
bool IsAmongLive(const PageOptions& options) { return options.after < kSecond; }

// A value that no task can have: an empty listing would say that there is none just now.
absl::Status CheckTaskFilter(const RowFilter& filter) {
  const auto want = [&filter](const std::string& wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter=", filter.key, "=", filter.value.substr(0, 80), ": want ", wanted));
  };
  uint32_t job = 0;
  if (filter.key == "job" && !absl::SimpleAtoi(filter.value, &job)) return want("a number");
  constexpr std::array<const char*, 3> kEndedStates = {"FINISHED", "FAILED", "CANCELLED"};
  constexpr std::array<const char*, 3> kTypes = {"NORMAL_TASK", "ACTOR_CREATION_TASK",
                                                 "ACTOR_TASK"};
  const auto is_one_of = [&filter](const auto& names) {
    return std::any_of(names.begin(), names.end(), [&filter](const char* name) {
      return absl::EqualsIgnoreCase(name, filter.value);
    });
  };
  if (filter.key == "state" && !is_one_of(kLiveStates) && !is_one_of(kEndedStates)) {
    return want(absl::StrCat("one of ", absl::StrJoin(kLiveStates, ", "), ", ",
                             absl::StrJoin(kEndedStates, ", ")));
  }
  if (filter.key == "type" && !is_one_of(kTypes))
    return want(absl::StrCat("one of ", absl::StrJoin(kTypes, ", ")));
  return absl::OkStatus();
}

// Nodes choose among their calls themselves: no listing holds them all.
absl::StatusOr<proto::StateQuery> TaskQuery(const PageOptions& options) {
  if (!options.order.empty() || !options.group.empty()) {
    return absl::InvalidArgumentError(
        "tasks come live ones first, then the last that ended: they take no order and no group; "
        "functions are counted at /api/sheaf/functions");
  }
  proto::StateQuery query = ListQuery("tasks");
  query.set_limit(static_cast<uint32_t>(BeforeOf(options)) + options.limit);
  query.set_ended(options.ended != PageOptions::Ended::kNot);
  if (!IsAmongLive(options)) query.set_ended_before_ns(options.after);
  for (const RowFilter& filter : options.filters) {
    if (std::find(kTaskKeys.begin(), kTaskKeys.end(), filter.key) == kTaskKeys.end() ||
        filter.test == RowFilter::Test::kContains) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tasks are filtered by their nodes: want KEY=VALUE or KEY!=VALUE, with one of the keys ",
          absl::StrJoin(kTaskKeys, ", ")));
    }
    SHEAF_RETURN_IF_ERROR(CheckTaskFilter(filter));
    AddFilter(query, filter.key, filter.test == RowFilter::Test::kIsNot, filter.value);
  }
  if (options.ended == PageOptions::Ended::kOnly || !IsAmongLive(options)) {
    for (const char* const state : kLiveStates) AddFilter(query, "state", true, state);
  }
  return query;
}

// What nodes can say of a row themselves, so that a listing that is cut short has what is wanted. They
// compare words; a filter that they do not know is looked at here alone, as all are here once more.
proto::StateQuery RowQuery(std::string_view name, const PageOptions& options) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kKnown = {
      {{"actors", "actor_id"},
       {"actors", "class_name"},
       {"actors", "name"},
       {"actors", "name_space"},
       {"objects", "object_id"},
       {"objects", "where"},
       {"objects", "owner"},
       {"objects", "may_leak"},
       {"groups", "group_id"},
       {"groups", "name"},
       {"workers", "process"},
       {"workers", "os_pid"},
       {"workers", "state"},
       {"workers", "owner"},
       {"workers", "node"}}};
  proto::StateQuery query = ListQuery(name);
  // What is chosen here alone is so of all rows that an answer can hold; an order, which pages ask for
  // every few seconds, is of those that a listing has.
  for (const RowFilter& filter : options.filters) {
    if (filter.test != RowFilter::Test::kIs || filter.value.empty() || filter.value[0] == '"' ||
        filter.value == "null" ||
        std::find(kKnown.begin(), kKnown.end(),
                  std::pair<std::string_view, std::string_view>(name, filter.key)) ==
            kKnown.end()) {
      query.set_limit(kMaxStateRows);
      continue;
    }
    AddFilter(query, filter.key, false, filter.value);
    uint32_t node = 0;
    if (filter.key == "node" && absl::SimpleAtoi(filter.value, &node)) query.set_node(node);
  }
  return query;
}

}  // namespace

void AddFilter(proto::StateQuery& query, const std::string& key, bool is_not,
               const std::string& value) {
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key(key);
  filter.set_not_equal(is_not);
  filter.set_value(value);
}

int64_t BeforeOf(const PageOptions& options) { return IsAmongLive(options) ? options.after : 0; }

absl::StatusOr<proto::StateQuery> QueryOf(std::string_view kind, const PageOptions& options) {
  if (kind == "tasks") return TaskQuery(options);
  return RowQuery(kind, options);
}

}  // namespace sheaf::dashboard
