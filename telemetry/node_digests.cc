// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/node_digests.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

namespace sheaf::telemetry {

namespace {

void SetKey(const TaskHistory::FunctionKey& key, proto::FunctionRow& row) {
  row.set_job(std::get<JobNumber>(key));
  row.set_type(CallKindName(std::get<CallKind>(key)));
  row.set_name(std::get<std::string>(key));
}

uint64_t EndedOf(const absl::btree_map<TaskHistory::FunctionKey, uint64_t>& counts,
                 const TaskHistory::FunctionKey& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

void NodeDigests::Count(const Sums& sums, Nanos now) {
  if (now - last_.at < kShortestSpan) return;
  before_ = std::move(last_);
  last_ = {.at = now, .ended = {}};
  for (const auto& [key, figures] : sums)
    last_.ended[key] = figures.ended[0] + figures.ended[1] + figures.ended[2];
}

void NodeDigests::AddFunctions(const Sums& sums, const CallLanes::Busy& busy, Nanos span,
                               proto::NodeDigest& digest) const {
  const double counted = static_cast<double>(std::max<Nanos>(1, last_.at - before_.at)) / kSecond;
  std::vector<proto::DigestFunction> functions;
  for (const auto& [key, figures] : sums) {
    proto::DigestFunction& function = functions.emplace_back();
    SetKey(key, *function.mutable_row());
    function.mutable_row()->set_finished(figures.ended[0]);
    function.mutable_row()->set_failed(figures.ended[1]);
    function.mutable_row()->set_cancelled(figures.ended[2]);
    // Before there were two counts nothing is known of a rate.
    const uint64_t last = EndedOf(last_.ended, key), before = EndedOf(before_.ended, key);
    if (before_.at != 0 && last > before)
      function.set_per_second(static_cast<double>(last - before) / counted);
    if (const auto spent = busy.find(key); spent != busy.end())
      function.set_busy(static_cast<double>(spent->second) / static_cast<double>(span));
  }
  for (const auto& [key, spent] : busy) {
    if (sums.contains(key)) continue;  // Else it runs for the first time.
    proto::DigestFunction& function = functions.emplace_back();
    SetKey(key, *function.mutable_row());
    function.set_busy(static_cast<double>(spent) / static_cast<double>(span));
  }
  const size_t shown = std::min(functions.size(), kFunctionsShown);
  std::partial_sort(functions.begin(), functions.begin() + static_cast<ptrdiff_t>(shown),
                    functions.end(), [](const auto& a, const auto& b) {
                      const auto rank = [](const proto::DigestFunction& function) {
                        return std::tuple(function.busy(), function.per_second(),
                                          function.row().finished());
                      };
                      return rank(a) > rank(b);
                    });
  for (size_t i = 0; i < shown; ++i) *digest.add_functions() = std::move(functions[i]);
}

void NodeDigests::Fill(const proto::StateQuery& query, TaskHistory& history, const HostSample& host,
                       Nanos now, Nanos to_wall, proto::NodeDigest& digest) {
  const proto::DigestCursor cursor =
      query.cursors_size() == 0 ? proto::DigestCursor() : query.cursors(0);
  // Whatever an asker says: neither of the future, nor of so long ago that bars could not say it.
  const Nanos from = cursor.at_ns() <= 0 || cursor.at_ns() >= now
                         ? now - kFirstSpan
                         : std::max<Nanos>(cursor.at_ns(), now - kFirstSpan);
  CallLanes lanes(from, now);
  TaskHistory::Arrived until = history.arrived();
  if (cursor.until_ended() != 0 || cursor.until_failures() != 0)
    until = {cursor.until_ended(), cursor.until_failures()};
  history.VisitBetween({cursor.ended(), cursor.failures()}, until, kMostCalls,
                       [&](const TaskEvent& event, const TaskHistory::Place& place) {
                         if (event.end >= from - kFirstSpan) lanes.Add(event, place);
                       });
  history.VisitRunning(
      [&](const RunningCall& call, uint16_t thread, const TaskHistory::Place& place) {
        lanes.AddRunning(call, thread, place);
      });
  if (query.lanes() > 0) lanes.Write(query.lanes(), to_wall, digest);

  const auto sums = history.Sums();
  Count(sums, now);
  AddFunctions(sums, lanes.busy(), now - from, digest);
  uint64_t ended[kOutcomes] = {};
  for (const auto& [key, figures] : sums) {
    for (size_t i = 0; i < kOutcomes; ++i) ended[i] += figures.ended[i];
  }
  digest.set_unix_ms((now + to_wall) / kMillisecond);
  digest.set_finished(ended[0]);
  digest.set_failed(ended[1]);
  digest.set_cancelled(ended[2]);
  digest.set_events_lost(history.lost());
  for (const float value : host) digest.add_host(value);
  const TaskHistory::Arrived arrived = history.arrived();
  digest.mutable_next()->set_ended(arrived.ended);
  digest.mutable_next()->set_failures(arrived.failures);
  digest.mutable_next()->set_at_ns(now);
}

}  // namespace sheaf::telemetry
