// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/state_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text/json.h"

namespace sheaf::dashboard {
namespace {

constexpr int64_t kMaxTimeout = 3600;

std::vector<std::string> All(const http::Pairs& query, std::string_view name) {
  std::vector<std::string> values;
  for (const auto& [key, value] : query) {
    if (key == name) values.push_back(value);
  }
  return values;
}

absl::StatusOr<int64_t> NumberIn(const http::Pairs& query, const char* name, int64_t otherwise,
                                 int64_t most) {
  const auto text = http::Find(query, name);
  if (!text) return otherwise;
  int64_t number = 0;
  if (!absl::SimpleAtoi(std::string(*text), &number) || number < 0 || number > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", std::string(*text), ": want a number from 0 to ", most));
  }
  return number;
}

absl::StatusOr<bool> FlagOf(const std::string& name, const std::string& text) {
  for (const char* yes : {"True", "true", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"False", "false", "0"}) {
    if (text == no) return false;
  }
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, ": want true or false"));
}

absl::StatusOr<std::vector<Filter>> FiltersIn(const http::Pairs& query) {
  const std::vector<std::string> keys = All(query, "filter_keys");
  const std::vector<std::string> predicates = All(query, "filter_predicates");
  const std::vector<std::string> values = All(query, "filter_values");
  if (keys.size() != values.size() || keys.size() != predicates.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", keys.size(), " filter_keys, ", predicates.size(), " filter_predicates and ",
        values.size(), " filter_values: want as many of each"));
  }
  std::vector<Filter> filters;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (predicates[i] != "=" && predicates[i] != "!=") {
      return absl::InvalidArgumentError(
          absl::StrCat("Unsupported filter predicate ", predicates[i], ": want = or !="));
    }
    std::string key = keys[i];
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return tolower(c); });
    filters.push_back({std::move(key), predicates[i] == "=", values[i]});
  }
  return filters;
}

absl::StatusOr<size_t> FilterColumn(const StateTable& table, const std::string& key) {
  std::vector<std::string> names;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (!table.columns[c].filterable) continue;
    if (table.columns[c].name == key) return c;
    names.emplace_back(table.columns[c].name);
  }
  return absl::InvalidArgumentError(absl::StrCat("The given filter column ", key,
                                                 " is not supported: there are ",
                                                 absl::StrJoin(names, ", ")));
}

absl::StatusOr<bool> Equal(const Value& value, const Filter& filter) {
  switch (value.kind) {
    case Value::Kind::kNumber: {
      int64_t number = 0;
      if (!absl::SimpleAtoi(filter.value, &number)) {
        return absl::InvalidArgumentError(
            absl::StrCat(filter.key, "=", filter.value, ": want a number"));
      }
      return value.text == std::to_string(number);
    }
    case Value::Kind::kFlag: {
      SHEAF_ASSIGN_OR_RETURN(const bool flag, FlagOf(filter.key, filter.value));
      return (value.text == "true") == flag;
    }
    case Value::Kind::kText:
      return absl::EqualsIgnoreCase(value.text, filter.value);
    default:
      return false;
  }
}

}  // namespace

Value Value::Text(std::string_view text) {
  return {Kind::kText, std::string(text), JsonString(text)};
}
Value Value::TextOrNull(std::string_view text) { return text.empty() ? Value{} : Text(text); }
Value Value::Number(int64_t number) {
  return {Kind::kNumber, std::to_string(number), JsonNumber(number)};
}
Value Value::Flag(bool flag) { return {Kind::kFlag, flag ? "true" : "false", JsonBool(flag)}; }

size_t ColumnOf(const StateTable& table, std::string_view name) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == name) return c;
  }
  SHEAF_CHECK(false, "the table has the column");
  return 0;
}

absl::StatusOr<ListOptions> ParseListOptions(const http::Pairs& query) {
  ListOptions options;
  SHEAF_ASSIGN_OR_RETURN(const int64_t limit, NumberIn(query, "limit", 100, kMaxLimit));
  options.limit = static_cast<size_t>(limit);
  SHEAF_ASSIGN_OR_RETURN(options.timeout_s, NumberIn(query, "timeout", 30, kMaxTimeout));
  if (const auto detail = http::Find(query, "detail")) {
    SHEAF_ASSIGN_OR_RETURN(options.detail, FlagOf("detail", std::string(*detail)));
  }
  SHEAF_ASSIGN_OR_RETURN(options.filters, FiltersIn(query));
  return options;
}

absl::Status Choose(const std::vector<Filter>& filters, StateTable& table) {
  for (const Filter& filter : filters) {
    SHEAF_ASSIGN_OR_RETURN(const size_t column, FilterColumn(table, filter.key));
    std::vector<std::vector<Value>> kept;
    for (std::vector<Value>& row : table.rows) {
      SHEAF_ASSIGN_OR_RETURN(const bool equal, Equal(row[column], filter));
      if (equal == filter.equal) kept.push_back(std::move(row));
    }
    table.rows = std::move(kept);
  }
  return absl::OkStatus();
}

std::string ListAnswer(const StateTable& table, const ListOptions& options, size_t total,
                       const std::vector<std::string>& warnings) {
  JsonArray rows;
  const size_t shown = std::min(options.limit, table.rows.size());
  for (size_t r = 0; r < shown; ++r) {
    JsonObject row;
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].detail && !options.detail) continue;
      row.Add(table.columns[c].name, table.rows[r][c].json);
    }
    rows.Add(row.Done());
  }
  JsonArray words;
  for (const std::string& warning : warnings) words.Add(JsonString(warning));
  return DataAnswer(JsonObject()
                        .Add("total", JsonNumber(uint64_t{total}))
                        .Add("num_after_truncation", JsonNumber(uint64_t{total}))
                        .Add("num_filtered", JsonNumber(uint64_t{table.rows.size()}))
                        .Add("result", rows.Done())
                        .Add("partial_failure_warning", "\"\"")
                        .Add("warnings", warnings.empty() ? "null" : words.Done())
                        .Done());
}

std::string DataAnswer(std::string_view result) {
  return JsonObject()
      .Add("result", "true")
      .Add("msg", "\"\"")
      .Add("data", JsonObject().Add("result", result).Done())
      .Done();
}

http::Response ErrorAnswer(int status, std::string_view why) {
  return {.status = status,
          .body = JsonObject()
                      .Add("result", "false")
                      .Add("msg", JsonString(why))
                      .Add("data", R"({"result":null})")
                      .Done()};
}

}  // namespace sheaf::dashboard
