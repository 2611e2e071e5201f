// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a listing of the state API has: rows of values under the names that Ray's listings have, and
// the filters that choose among them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "http/message.h"

namespace sheaf::dashboard {

struct Value {
  enum class Kind : uint8_t { kText, kNumber, kFlag, kOther, kNull };
  Kind kind = Kind::kNull;
  std::string text{};  // For filters; of a flag "true" or "false".
  std::string json = "null";

  static Value Text(std::string_view text);
  static Value TextOrNull(std::string_view text);  // Null where it is empty.
  static Value Number(int64_t number);
  static Value Flag(bool flag);
  static Value Json(std::string json) { return {Kind::kOther, {}, std::move(json)}; }
};

struct Column {
  const char* name;
  bool filterable = true;
  bool detail = false;  // Left out unless detail=true.
};

struct StateTable {
  std::vector<Column> columns;
  std::vector<std::vector<Value>> rows;  // Each as long as `columns`.
  bool truncated = false;                // There are more rows than these.
};

// The index of a column that `table` has.
size_t ColumnOf(const StateTable& table, std::string_view name);

struct Filter {
  std::string key;
  bool equal = true;  // = or !=.
  std::string value;
};

struct ListOptions {
  size_t limit = 100;
  int64_t timeout_s = 30;
  bool detail = false;
  std::vector<Filter> filters;
};

inline constexpr size_t kMaxLimit = 10'000;

// From limit, timeout, detail, and filter_keys, filter_predicates and filter_values, which are
// repeated alike. kInvalidArgument: one of them is not as it shall be; the text says how.
absl::StatusOr<ListOptions> ParseListOptions(const http::Pairs& query);

// Keeps the rows that fit all filters; texts are compared without regard to case. kInvalidArgument:
// a column that there is not or that cannot be filtered by, or a value that does not fit its
// column's kind.
absl::Status Choose(const std::vector<Filter>& filters, StateTable& table);

// Ray's answer to a listing, from the rows that Choose left over of `total`:
// {"result":true,"msg":"","data":{"result":{"total":...,"result":[...]}}}.
std::string ListAnswer(const StateTable& table, const ListOptions& options, size_t total,
                       const std::vector<std::string>& warnings);
// {"result":true,...,"data":{"result": `result`}}.
std::string DataAnswer(std::string_view result);
// {"result":false,"msg":"why","data":{"result":null}}.
http::Response ErrorAnswer(int status, std::string_view why);

}  // namespace sheaf::dashboard
