// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/live/digest_json.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "dashboard/event_rows.h"
#include "dashboard/tables/cells.h"
#include "telemetry/host_figures.h"
#include "telemetry/task_events.h"

namespace sheaf::dashboard {
namespace {

constexpr size_t kFunctionsShown = 16;

std::string ResourcesJson(const proto::NodeDigest& digest) {
  const absl::btree_map<std::string, int64_t> total(digest.total().amounts().begin(),
                                                    digest.total().amounts().end());
  JsonObject resources;
  for (const auto& [name, amount] : total) {
    const auto available = digest.available().amounts().find(name);
    const int64_t free = available == digest.available().amounts().end() ? 0 : available->second;
    resources.Add(name,
                  JsonArray().Add(JsonAmount(name, amount)).Add(JsonAmount(name, free)).Done());
  }
  return resources.Done();
}

std::string NodeJson(const proto::NodeDigest& digest) {
  JsonObject workers, host;
  const absl::btree_map<std::string, uint32_t> states(digest.workers().begin(),
                                                      digest.workers().end());
  for (const auto& [state, count] : states) workers.Add(state, JsonNumber(uint64_t{count}));
  const size_t series = std::min<size_t>(telemetry::kHostSeries, digest.host_size());
  for (size_t i = 0; i < series; ++i) {
    host.Add(telemetry::NameOf(static_cast<telemetry::HostSeries>(i)),
             JsonNumber(double{digest.host(static_cast<int>(i))}));
  }
  return JsonObject()
      .Add("node", JsonNumber(uint64_t{digest.node()}))
      .Add("unix_ms", JsonNumber(int64_t{digest.unix_ms()}))
      .Add("resources", ResourcesJson(digest))
      .Add("workers", workers.Done())
      .Add("processes", JsonNumber(uint64_t{digest.processes()}))
      .Add("waiting", JsonNumber(uint64_t{digest.waiting()}))
      .Add("infeasible", JsonNumber(uint64_t{digest.infeasible()}))
      .Add("store", StoreJson(digest.store()))
      .Add("host", host.Done())
      .Add("finished", JsonNumber(uint64_t{digest.finished()}))
      .Add("failed", JsonNumber(uint64_t{digest.failed()}))
      .Add("cancelled", JsonNumber(uint64_t{digest.cancelled()}))
      .Add("events_lost", JsonNumber(uint64_t{digest.events_lost()}))
      .Add("lanes_left_out", JsonNumber(uint64_t{digest.lanes_left_out()}))
      .Done();
}

// Of all nodes, as one list.
std::string FunctionsJson(const proto::StateAnswer& digests) {
  struct Sum {
    uint64_t finished = 0, failed = 0, cancelled = 0;
    double per_second = 0, busy = 0;
  };
  using Key = std::tuple<uint32_t, std::string, std::string>;
  absl::btree_map<Key, Sum> sums;
  for (const proto::NodeDigest& digest : digests.digests()) {
    for (const proto::DigestFunction& function : digest.functions()) {
      const proto::FunctionRow& row = function.row();
      Sum& sum = sums[{row.job(), row.type(), row.name()}];
      sum.finished += row.finished();
      sum.failed += row.failed();
      sum.cancelled += row.cancelled();
      sum.per_second += function.per_second();
      sum.busy += function.busy();
    }
  }
  std::vector<std::pair<Key, Sum>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.busy, a.second.per_second) >
           std::pair(b.second.busy, b.second.per_second);
  });
  order.resize(std::min(order.size(), kFunctionsShown));
  JsonArray rows;
  for (const auto& [key, sum] : order) {
    rows.Add(JsonObject()
                 .Add("name", JsonString(std::get<2>(key)))
                 .Add("type", JsonString(std::get<1>(key)))
                 .Add("job", JsonNumber(uint64_t{std::get<0>(key)}))
                 .Add("finished", JsonNumber(sum.finished))
                 .Add("failed", JsonNumber(sum.failed))
                 .Add("cancelled", JsonNumber(sum.cancelled))
                 .Add("per_second", JsonNumber(sum.per_second))
                 .Add("busy", JsonNumber(sum.busy))
                 .Done());
  }
  return rows.Done();
}

// Names of one node become names of all.
class Names {
 public:
  uint16_t Of(const std::string& name) {
    constexpr size_t kMost = 0xFFFF;  // Of so many can bars speak.
    static const std::string& other = *new std::string(telemetry::kOtherFunctionName);
    if (numbers_.size() >= kMost - 1 && name != other && !numbers_.contains(name)) return Of(other);
    const auto [known, added] = numbers_.try_emplace(name, static_cast<uint16_t>(numbers_.size()));
    if (added) json_.Add(JsonString(name));
    return known->second;
  }
  std::string Json() const { return json_.Done(); }

 private:
  absl::flat_hash_map<std::string, uint16_t> numbers_;
  JsonArray json_;
};

std::string LaneJson(const proto::NodeDigest& digest, const proto::Lane& lane,
                     const std::vector<uint16_t>& names) {
  constexpr size_t kBarBytes = 12, kNameAt = 8;  // telemetry/call_lanes.h
  std::string bars = lane.bars().substr(0, lane.bars().size() / kBarBytes * kBarBytes);
  for (size_t at = kNameAt; at < bars.size(); at += kBarBytes) {
    const size_t name = static_cast<uint8_t>(bars[at]) |
                        static_cast<size_t>(static_cast<uint8_t>(bars[at + 1])) << 8;
    const uint16_t number = name < names.size() ? names[name] : 0;
    bars[at] = static_cast<char>(number);
    bars[at + 1] = static_cast<char>(number >> 8);
  }
  JsonArray running;
  for (const proto::RunningCall& call : lane.running()) {
    if (call.name() >= names.size()) continue;
    running.Add(JsonObject()
                    .Add("name", JsonNumber(uint64_t{names[call.name()]}))
                    .Add("begin_ms", JsonNumber(int64_t{call.begin_unix_ms()}))
                    .Done());
  }
  return JsonObject()
      .Add("node", JsonNumber(uint64_t{digest.node()}))
      .Add("process", JsonString(ProcessId::Unpack(lane.process()).ToString()))
      .Add("os_pid", JsonNumber(int64_t{lane.os_pid()}))
      .Add("thread", JsonNumber(uint64_t{lane.thread()}))
      .Add("busy", JsonNumber(double{lane.busy()}))
      .Add("base_us", JsonNumber(int64_t{digest.base_unix_us()}))
      .Add("bars", JsonString(absl::Base64Escape(bars)))
      .Add("running", running.Done())
      .Done();
}

}  // namespace

std::string DigestJson(const proto::StateAnswer& digests, const proto::StateAnswer& events,
                       Nanos period) {
  JsonArray nodes, late, lanes, happened;
  Names names;
  for (const proto::NodeDigest& digest : digests.digests()) {
    nodes.Add(NodeJson(digest));
    std::vector<uint16_t> numbers;
    for (const std::string& name : digest.names()) numbers.push_back(names.Of(name));
    for (const proto::Lane& lane : digest.lanes()) lanes.Add(LaneJson(digest, lane, numbers));
  }
  for (const uint32_t node : digests.late_nodes()) late.Add(JsonNumber(uint64_t{node}));
  for (const proto::EventRow& event : events.events()) happened.Add(EventJson(event));
  return JsonObject()
      .Add("unix_ms", JsonNumber(UnixNow() / kMillisecond))
      .Add("period_ms", JsonNumber(int64_t{period / kMillisecond}))
      .Add("nodes", nodes.Done())
      .Add("late", late.Done())
      .Add("functions", FunctionsJson(digests))
      .Add("names", names.Json())
      .Add("lanes", lanes.Done())
      .Add("events", happened.Done())
      .Done();
}

}  // namespace sheaf::dashboard
