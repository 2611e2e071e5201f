// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A page of a listing: which rows, in which order. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "dashboard/tables/cells.h"
#include "http/message.h"

namespace sheaf::dashboard {

struct RowFilter {
  enum class Test : uint8_t { kIs, kIsNot, kContains };
  std::string key;
  Test test = Test::kIs;
  std::string value;
};

struct PageOptions {
  enum class Ended : uint8_t { kToo, kNot, kOnly };
  std::vector<RowFilter> filters;
  std::string order;  // A key, or empty: as the rows come.
  bool descending = false;
  uint32_t limit = 50;
  // How many rows come before the page; of tasks that have ended, before when they did, in ns.
  int64_t after = 0;
  std::string group;
  Ended ended = Ended::kToo;
};
inline constexpr uint32_t kMaxPage = 1000;

// kInvalidArgument: a parameter that there is not, or that is not as it shall be; the text says how.
absl::StatusOr<PageOptions> ParsePageOptions(const http::Pairs& query);

// Keeps the rows of `table` that fit the filters, and orders them. kInvalidArgument: a key that
// there is not; the text names those that there are.
absl::Status Arrange(const PageOptions& options, Listing& table);

struct ValueCount {
  std::string value;  // JSON.
  uint64_t rows = 0, size_bytes = 0;
};
// [{"value","rows","size_bytes"}], the most rows first, at most 100.
std::string CountsJson(std::vector<ValueCount> counts);
// The same of the rows of `table`, by their value of `key`. kInvalidArgument: as Arrange.
absl::StatusOr<std::string> CountsOf(const Listing& table, const std::string& key);

}  // namespace sheaf::dashboard
