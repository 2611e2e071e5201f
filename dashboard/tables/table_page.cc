// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/table_page.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text/json.h"

namespace sheaf::dashboard {
namespace {

constexpr size_t kMaxGroups = 100;

std::string Shown(std::string_view text) { return std::string(text.substr(0, 80)); }

absl::StatusOr<RowFilter> ParseFilter(const std::string& text) {
  const size_t at = text.find_first_of("=!~");
  const bool is_not = at != std::string::npos && text.compare(at, 2, "!=") == 0;
  if (at == std::string::npos || at == 0 || (text[at] == '!' && !is_not)) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter=", Shown(text), ": want KEY=VALUE, KEY!=VALUE or KEY~VALUE"));
  }
  using Test = RowFilter::Test;
  return RowFilter{text.substr(0, at),
                   is_not            ? Test::kIsNot
                   : text[at] == '~' ? Test::kContains
                                     : Test::kIs,
                   text.substr(at + (is_not ? 2 : 1))};
}

absl::StatusOr<PageOptions::Ended> ParseEnded(const std::string& text) {
  if (text == "true") return PageOptions::Ended::kToo;
  if (text == "false") return PageOptions::Ended::kNot;
  if (text == "only") return PageOptions::Ended::kOnly;
  return absl::InvalidArgumentError(
      absl::StrCat("ended=", Shown(text), ": want true, false or only"));
}

absl::StatusOr<size_t> PlaceOf(const Listing& table, const std::string& key) {
  std::vector<std::string> keys;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].key == key) return c;
    keys.emplace_back(table.columns[c].key);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no key ", Shown(key), "; there are ", absl::StrJoin(keys, ", ")));
}

// kInvalidArgument: the cells of column `place` are numbers, and the value of `filter` does not begin
// as one: no row can have it. (It may be words for people: "1.5 GiB".)
absl::Status CheckNumber(const RowFilter& filter, const Listing& table, size_t place) {
  if (filter.test == RowFilter::Test::kContains || filter.value.empty() || filter.value == "null")
    return absl::OkStatus();
  if (filter.value.find_first_of("0123456789") <= 1) return absl::OkStatus();  // Perhaps "-1".
  bool numbers = false;
  for (const auto& row : table.rows) {
    double number = 0;
    if (row[place].json == "null") continue;
    if (!absl::SimpleAtod(row[place].json, &number)) return absl::OkStatus();
    numbers = true;
  }
  if (!numbers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("filter=", filter.key, "=", Shown(filter.value), ": want a number"));
}

// A cell by its words for people, or by its value for programs: a text in JSON, or as it is, which is
// not what people see where a terminal would not show it.
bool Holds(const RowFilter& filter, const Cell& cell) {
  if (filter.test == RowFilter::Test::kContains)
    return absl::StrContains(absl::AsciiStrToLower(cell.text), absl::AsciiStrToLower(filter.value));
  const bool same = absl::EqualsIgnoreCase(cell.text, filter.value) || cell.json == filter.value ||
                    (cell.json.starts_with('"') && cell.json == JsonString(filter.value));
  return same == (filter.test == RowFilter::Test::kIs);
}

// What is not known comes last in either order.
bool ComesBefore(const Cell& a, const Cell& b, bool descending) {
  const bool a_known = a.json != "null", b_known = b.json != "null";
  if (a_known != b_known) return a_known;
  double x = 0, y = 0;
  if (absl::SimpleAtod(a.json, &x) && absl::SimpleAtod(b.json, &y))
    return descending ? x > y : x < y;
  return descending ? a.text > b.text : a.text < b.text;
}

}  // namespace

absl::StatusOr<PageOptions> ParsePageOptions(const http::Pairs& query) {
  PageOptions options;
  for (const auto& [name, value] : query) {
    if (name == "filter") {
      SHEAF_ASSIGN_OR_RETURN(RowFilter filter, ParseFilter(value));
      options.filters.push_back(std::move(filter));
    } else if (name == "order") {
      options.descending = value.starts_with('-');
      options.order = value.substr(options.descending ? 1 : 0);
    } else if (name == "group") {
      options.group = value;
    } else if (name == "ended") {
      SHEAF_ASSIGN_OR_RETURN(options.ended, ParseEnded(value));
    } else if (name == "limit") {
      if (!absl::SimpleAtoi(value, &options.limit) || options.limit == 0 ||
          options.limit > kMaxPage) {
        return absl::InvalidArgumentError(
            absl::StrCat("limit=", Shown(value), ": want a number from 1 to ", kMaxPage));
      }
    } else if (name == "after") {
      if (!absl::SimpleAtoi(value, &options.after) || options.after < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("after=", Shown(value), ": want `next` of the page before"));
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no parameter ", Shown(name),
                       "; there are filter, order, limit, after, group, ended"));
    }
  }
  return options;
}

absl::Status Arrange(const PageOptions& options, Listing& table) {
  for (const RowFilter& filter : options.filters) {
    SHEAF_ASSIGN_OR_RETURN(const size_t place, PlaceOf(table, filter.key));
    SHEAF_RETURN_IF_ERROR(CheckNumber(filter, table, place));
    std::erase_if(table.rows, [&](const auto& row) { return !Holds(filter, row[place]); });
  }
  if (options.order.empty()) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(const size_t place, PlaceOf(table, options.order));
  std::stable_sort(table.rows.begin(), table.rows.end(), [&](const auto& a, const auto& b) {
    return ComesBefore(a[place], b[place], options.descending);
  });
  return absl::OkStatus();
}

std::string CountsJson(std::vector<ValueCount> counts) {
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.rows > b.rows; });
  counts.resize(std::min(counts.size(), kMaxGroups));
  JsonArray groups;
  for (const ValueCount& count : counts) {
    groups.Add(JsonObject()
                   .Add("value", count.value)
                   .Add("rows", JsonNumber(count.rows))
                   .Add("size_bytes", JsonNumber(count.size_bytes))
                   .Done());
  }
  return groups.Done();
}

absl::StatusOr<std::string> CountsOf(const Listing& table, const std::string& key) {
  SHEAF_ASSIGN_OR_RETURN(const size_t place, PlaceOf(table, key));
  const absl::StatusOr<size_t> size = PlaceOf(table, "size_bytes");
  std::map<std::string, ValueCount> sums;
  for (const auto& row : table.rows) {
    ValueCount& sum = sums[row[place].json];
    sum.value = row[place].json;
    ++sum.rows;
    uint64_t bytes = 0;
    if (size.ok() && absl::SimpleAtoi(row[*size].json, &bytes)) sum.size_bytes += bytes;
  }
  std::vector<ValueCount> counts;
  for (auto& [value, sum] : sums) counts.push_back(std::move(sum));
  return CountsJson(std::move(counts));
}

}  // namespace sheaf::dashboard
