// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/call_lanes.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace sheaf::telemetry {
namespace {

constexpr size_t kMostColumns = kMostBars / 2;
constexpr size_t kMostNames = 4096;  // Of a digest; the rest goes by the name of others.

void AddLittleEndian(uint64_t value, size_t bytes, std::string& to) {
  for (size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

BarKind KindOf(Outcome outcome) {
  return outcome == Outcome::kFinished ? BarKind::kFinished
         : outcome == Outcome::kFailed ? BarKind::kFailed
                                       : BarKind::kCancelled;
}

}  // namespace

// The names of a digest, as they are first used.
class CallLanes::Names {
 public:
  explicit Names(proto::NodeDigest& digest) : digest_(digest) {}
  uint16_t Of(const std::string& name) {
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    if (numbers_.size() == kMostNames && name != kOtherFunctionName)
      return Of(std::string(kOtherFunctionName));
    const auto number = static_cast<uint16_t>(digest_.names_size());
    digest_.add_names(name);
    numbers_.emplace(name, number);
    return number;
  }

 private:
  proto::NodeDigest& digest_;
  absl::flat_hash_map<std::string, uint16_t> numbers_;
};

const std::string* CallLanes::Spend(const TaskHistory::Place& place, Lane& lane, Nanos begin,
                                    Nanos end, int64_t weight) {
  const auto function =
      busy_.try_emplace(TaskHistory::FunctionKey{place.job, place.kind, place.function}, 0).first;
  // A sampled call stands for others of its kind, which ran in the same span.
  const Nanos within = std::max<Nanos>(0, std::min(end, to_) - std::max(begin, from_));
  const Nanos spent = std::min(within, (to_ - from_) / weight) * weight;
  function->second += spent;
  lane.busy += spent;
  lane.os_pid = place.os_pid;
  return &std::get<std::string>(function->first);
}

void CallLanes::Add(const TaskEvent& event, const TaskHistory::Place& place) {
  if (event.begin >= event.end) return;  // It ran nowhere, or took no time.
  Lane& lane = lanes_[{place.process, event.thread}];
  const std::string* const function =
      Spend(place, lane, event.begin, event.end, std::max<int64_t>(1, event.weight));
  lane.calls.push_back({event.begin, event.end, function, event.weight, KindOf(event.outcome)});
}

void CallLanes::AddRunning(const RunningCall& call, uint16_t thread,
                           const TaskHistory::Place& place) {
  if (call.begin >= to_) return;
  Lane& lane = lanes_[{place.process, thread}];
  lane.running.emplace_back(call.begin, Spend(place, lane, call.begin, to_, 1));
}

void CallLanes::WriteBars(const Lane& lane, Names& names, std::string& bars) const {
  const Nanos base = to_ - kBarSpan;
  const auto add = [&](Nanos begin, Nanos end, uint16_t name, BarKind kind, uint8_t share) {
    constexpr Nanos kMost = std::numeric_limits<uint32_t>::max();
    begin = std::clamp(begin, base, to_);
    AddLittleEndian(static_cast<uint64_t>((begin - base) / kMicrosecond), 4, bars);
    const Nanos length = std::clamp<Nanos>((end - begin) / kMicrosecond, 1, kMost);
    AddLittleEndian(static_cast<uint64_t>(length), 4, bars);
    AddLittleEndian(name, 2, bars);
    bars.push_back(static_cast<char>(kind));
    bars.push_back(static_cast<char>(share));
  };
  std::vector<const Call*> drawn, folded;
  for (const Call& call : lane.calls) {
    const bool alone = call.weight <= 1 && call.end - call.begin >= kDrawnFrom;
    (alone || call.kind != BarKind::kFinished ? drawn : folded).push_back(&call);
  }
  // The longest, if there are too many; the others are columns.
  if (const size_t most = kMostBars - kMostColumns; drawn.size() > most) {
    std::nth_element(drawn.begin(), drawn.begin() + most, drawn.end(),
                     [](auto* a, auto* b) { return a->end - a->begin > b->end - b->begin; });
    folded.insert(folded.end(), drawn.begin() + most, drawn.end());
    drawn.resize(most);
  }
  for (const Call* call : drawn)
    add(call->begin, call->end, names.Of(*call->function), call->kind, 255);
  if (folded.empty()) return;

  Nanos first = to_;
  for (const Call* call : folded) first = std::min(first, std::max(call->begin, from_));
  const Nanos width =
      std::max<Nanos>(kDrawnFrom, (to_ - first) / static_cast<Nanos>(kMostColumns) + 1);
  struct Column {
    Nanos spent = 0, most = 0;
    const std::string* function = nullptr;  // The one that took most at once.
  };
  std::vector<Column> columns(kMostColumns);
  for (const Call* call : folded) {
    // What stands for others is put where it ended; the others are near.
    Nanos left = (call->end - call->begin) * std::max<int64_t>(1, call->weight);
    for (Nanos at = std::min(call->end, to_) - 1; left > 0 && at >= first; at -= width) {
      Column& column =
          columns[std::min(kMostColumns - 1, static_cast<size_t>((at - first) / width))];
      const Nanos here = std::min(left, width - std::min(width, column.spent));
      column.spent += here;
      if (here > column.most || column.function == nullptr) {
        column.most = here;
        column.function = call->function;
      }
      left -= here;
    }
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].function == nullptr) continue;
    const Nanos begin = first + static_cast<Nanos>(i) * width;
    add(begin, begin + width, names.Of(*columns[i].function), BarKind::kColumn,
        static_cast<uint8_t>(std::clamp<Nanos>(columns[i].spent * 255 / width, 1, 255)));
  }
}

void CallLanes::Write(size_t most, Nanos to_wall, proto::NodeDigest& digest) const {
  std::vector<const decltype(lanes_)::value_type*> order;
  for (const auto& lane : lanes_) order.push_back(&lane);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return a->second.busy > b->second.busy; });
  digest.set_base_unix_us((to_ - kBarSpan + to_wall) / kMicrosecond);
  most = std::min(most, kMostLanes);
  digest.set_lanes_left_out(static_cast<uint32_t>(order.size() - std::min(order.size(), most)));
  order.resize(std::min(order.size(), most));
  Names names(digest);
  const auto span = static_cast<float>(std::max<Nanos>(1, to_ - from_));
  for (const auto* entry : order) {
    const Lane& lane = entry->second;
    proto::Lane& row = *digest.add_lanes();
    row.set_process(entry->first.first.packed());
    row.set_thread(entry->first.second);
    row.set_os_pid(lane.os_pid);
    row.set_busy(std::min(1.0F, static_cast<float>(lane.busy) / span));
    WriteBars(lane, names, *row.mutable_bars());
    for (const auto& [begin, function] : lane.running) {
      proto::RunningCall& call = *row.add_running();
      call.set_name(names.Of(*function));
      call.set_begin_unix_ms((begin + to_wall) / kMillisecond);
    }
  }
}

}  // namespace sheaf::telemetry
