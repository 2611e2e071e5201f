// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_search.h"

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/logs/node_log.h"

namespace sheaf::dashboard {
namespace {

constexpr uint64_t kSearched = uint64_t{64} << 20;
constexpr uint32_t kPieceBytes = 1 << 20;
constexpr size_t kMostMatches = 500;
constexpr size_t kMostFind = 200;
constexpr size_t kMostLine = 2000;         // Of a line that is shown.
constexpr size_t kLongestLine = 64 << 10;  // What is longer counts as several.
constexpr Nanos kTime = 8 * kSecond;

class Search {
 public:
  Search(AskNode ask, NodeNumber node, std::string find)
      : ask_(std::move(ask)), node_(node), find_(absl::AsciiStrToLower(find)) {}

  // A file that has gone meanwhile has no lines.
  absl::Status In(const proto::LogFile& file) {
    const uint64_t wanted = std::min(file.size_bytes(), kSearched - std::min(searched_, kSearched));
    left_out_ += file.size_bytes() - wanted;
    if (IsFull() || IsLate()) more_ = true;
    if (wanted == 0 || more_) return absl::OkStatus();
    NodeLog log(ask_, {.node = node_, .name = file.name(), .only_file = true});
    const absl::StatusOr<proto::LogPiece> end = log.Last(0, 1);
    if (absl::IsNotFound(end.status())) return absl::OkStatus();
    SHEAF_RETURN_IF_ERROR(end.status());
    log.Seek(end->next() - std::min(end->next(), wanted));
    std::string rest;
    while (log.offset() < end->next() && !IsLate()) {
      const uint64_t left = std::min<uint64_t>(end->next() - log.offset(), kPieceBytes);
      SHEAF_ASSIGN_OR_RETURN(const proto::LogPiece piece, log.Next(static_cast<uint32_t>(left)));
      if (piece.bytes().empty()) break;
      searched_ += piece.bytes().size();
      rest += piece.bytes();
      rest.erase(0, TakeLines(rest));
    }
    Take(rest);
    more_ |= IsLate();
    for (const std::string& line : lines_) {
      matches_.Add(
          JsonObject().Add("file", JsonString(file.name())).Add("line", JsonString(line)).Done());
    }
    found_ += lines_.size();
    lines_.clear();
    return absl::OkStatus();
  }

  std::string Json() const {
    return JsonObject()
        .Add("matches", matches_.Done())
        .Add("searched_bytes", JsonNumber(searched_))
        .Add("left_out_bytes", JsonNumber(left_out_))
        .Add("more", JsonBool(more_))
        .Done();
  }

 private:
  bool IsFull() const { return found_ + lines_.size() >= kMostMatches; }
  bool IsLate() const { return MonotonicNow() >= deadline_; }

  // How many bytes at the beginning of `text` were whole lines.
  size_t TakeLines(std::string_view text) {
    size_t begin = 0;
    while (true) {
      const size_t end = text.find('\n', begin);
      if (end == std::string_view::npos) break;
      Take(text.substr(begin, end - begin));
      begin = end + 1;
    }
    if (text.size() - begin < kLongestLine) return begin;
    Take(text.substr(begin));
    return text.size();
  }

  void Take(std::string_view line) {
    const std::string lower = absl::AsciiStrToLower({line.data(), line.size()});
    const size_t at = lower.find(find_);
    if (at == std::string::npos) return;
    if (IsFull()) {
      lines_.pop_front();
      more_ = true;
    }
    if (at + find_.size() > kMostLine) line.remove_prefix(at);  // So that it is seen.
    lines_.emplace_back(line.substr(0, kMostLine));
  }

  const AskNode ask_;
  const NodeNumber node_;
  const std::string find_;  // In lower case.
  const Nanos deadline_ = Deadline(MonotonicNow(), kTime);
  JsonArray matches_;
  size_t found_ = 0;               // In the files before.
  std::deque<std::string> lines_;  // Of this file.
  bool more_ = false;
  uint64_t searched_ = 0, left_out_ = 0;
};

absl::StatusOr<http::Response> Answer(const AskNode& ask, const http::Request& request) {
  NodeNumber node = 0;
  const std::string text(request.Capture("node"));
  if (!absl::SimpleAtoi(text, &node) || node == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text.substr(0, 80), "': want the number of a node"));
  }
  const std::string find = Parameter(request, "find");
  if (find.empty() || find.size() > kMostFind) {
    return absl::InvalidArgumentError(
        absl::StrCat("find=: want a text of 1 to ", kMostFind, " bytes"));
  }
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer listed,
                         ListLogs(ask, node, Parameter(request, "glob")));
  std::vector<proto::LogFile> files(listed.log_files().begin(), listed.log_files().end());
  std::stable_sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return a.modified_unix_s() > b.modified_unix_s();
  });
  Search search(ask, node, find);
  for (const proto::LogFile& file : files) SHEAF_RETURN_IF_ERROR(search.In(file));
  return http::Response{.body = search.Json()};
}

}  // namespace

void AddLogSearch(http::Router& router, Asker& asker) {
  AddQuestion(router, asker, "/api/sheaf/logs/{node}", Answer);
}

}  // namespace sheaf::dashboard
