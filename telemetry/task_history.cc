// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/task_history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/message_limits.h"
#include "telemetry/row_filters.h"

namespace sheaf::telemetry {

// A slot of the deques and what they hold beside it is about this big.
TaskHistory::TaskHistory(size_t bytes)
    : most_ended_(bytes / 10 * 9 / sizeof(Ended)),
      most_failures_(bytes / 10 / (sizeof(Failure) + kErrorTextBytes)) {}

void TaskHistory::Add(ProcessId process, int32_t os_pid, const EventPage& page) {
  processes_[process] = std::make_unique<Process>(process, os_pid, page);
}

void TaskHistory::Remove(ProcessId process) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  ReadFrom(*found->second);
  SumUp(*found->second, of_the_gone_);
  processes_.erase(found);
  FoldOldest();
}

// Of jobs long over nobody asks by function; what all calls come to stays exact.
void TaskHistory::FoldOldest() {
  while (of_the_gone_.size() > kMostFunctionsOfTheGone) {
    auto oldest = of_the_gone_.begin();
    while (std::get<JobNumber>(oldest->first) == 0 &&
           std::get<std::string>(oldest->first) == kOtherFunctionName)
      ++oldest;
    const auto kind = std::get<CallKind>(oldest->first);
    const FunctionFigures figures = oldest->second;
    of_the_gone_.erase(oldest);
    of_the_gone_[{0, kind, std::string(kOtherFunctionName)}].Add(figures);
  }
}

bool TaskHistory::Read() {
  bool any = false;
  for (auto& [id, process] : processes_) {
    if (process->reader.HasNews()) any |= ReadFrom(*process);
  }
  return any;
}

bool TaskHistory::ReadFrom(Process& process) {
  bool any = false;
  lost_ += process.reader.Drain(
      [&](const TaskEvent& event, std::string_view text, const TraceContext& trace) {
        any = true;
        std::shared_ptr<const Place> place = PlaceOf(process, event.function);
        if (sink_) sink_(event, place, text, trace);
        if (event.outcome == Outcome::kFinished) {
          ended_.push_back({event, std::move(place)});
          if (ended_.size() > most_ended_) {
            ended_.pop_front();
            ++ended_gone_;
          }
        } else {
          failures_.push_back({{event, std::move(place)}, std::string(text)});
          if (failures_.size() > most_failures_) {
            failures_.pop_front();
            ++failures_gone_;
          }
        }
      });
  return any;
}

// A process becomes an actor, and learns its job, before calls of it end; a driver's first failures
// may be of before it knows.
std::shared_ptr<const TaskHistory::Place> TaskHistory::PlaceOf(Process& process,
                                                               uint16_t function) {
  if (function >= kFunctions) function = kOtherFunction;
  if (function >= process.places.size()) process.places.resize(function + 1);
  std::shared_ptr<const Place>& known = process.places[function];
  const JobNumber job = process.reader.job();
  const ActorId actor = process.reader.actor();
  if (known == nullptr || known->job != job || known->actor != actor) {
    FunctionFigures figures = process.reader.FiguresOf(function);
    known = std::make_shared<const Place>(
        Place{process.process, process.os_pid, job, actor, std::move(figures.name), figures.kind});
  }
  return known;
}

void TaskHistory::Fill(const Ended& call, const std::string* text, Nanos to_wall,
                       proto::TaskRow& row) {
  const TaskEvent& event = call.event;
  const Place& place = *call.place;
  row.set_task_id(event.task.ToHex());
  row.set_name(place.function);
  row.set_type(CallKindName(place.kind));
  row.set_state(OutcomeName(event.outcome));
  row.set_owner(event.task.maker_bits);
  row.set_attempt(event.attempt);
  row.set_job(place.job);
  // Where its owner recorded the end, it ran nowhere, or nobody knows; but actors may call themselves.
  if (place.process.packed() != event.task.maker_bits || event.begin != event.end) {
    row.set_worker(place.process.packed());
    row.set_os_pid(place.os_pid);
    row.set_thread(event.thread);
    if (!place.actor.is_nil() && place.kind != CallKind::kTask)
      row.set_actor_id(place.actor.ToHex());
  }
  const Nanos end = event.end + to_wall;
  row.set_created_unix_ms(UnixMs(event.created_ms, end));
  if (event.begin != event.end) row.set_begin_unix_ns(event.begin + to_wall);
  row.set_end_unix_ns(end);
  row.set_parent_sequence(event.parent_sequence);
  row.set_weight(event.weight);
  if (text == nullptr) return;
  row.set_error_type(ListedErrorName(event.error));
  row.set_error(*text);
}

bool TaskHistory::Matches(const proto::TaskRow& row, const proto::StateQuery& query) {
  if (!query.id().empty() && !absl::StartsWith(row.task_id(), query.id())) return false;
  return FiltersHold(row, query.filters());
}

void TaskHistory::AddTasks(const proto::StateQuery& query, uint32_t limit, Nanos to_wall,
                           proto::StateAnswer& answer) const {
  // Those of a process were taken in together, so calls of several do not lie in order. A heap: often
  // but a few of many are wanted.
  struct Found {
    Nanos end;
    const Ended* call;
    const std::string* text;
    bool operator<(const Found& other) const { return end < other.end; }
  };
  std::vector<Found> found;
  found.reserve(size());
  const bool by_id =
      !query.id().empty() || std::any_of(query.filters().begin(), query.filters().end(),
                                         [](const auto& one) { return one.key() == "task_id"; });
  // Before its row is made: there are hundreds of thousands.
  const auto may_match = [&](const Ended& call) {
    if (by_id) {
      const std::string id = call.event.task.ToHex();
      if (!absl::StartsWith(id, query.id()) || !MayHold("task_id", id, query.filters()))
        return false;
    }
    return query.filters().empty() ||
           (MayHold("name", call.place->function, query.filters()) &&
            MayHold("state", OutcomeName(call.event.outcome), query.filters()) &&
            MayHold("type", CallKindName(call.place->kind), query.filters()));
  };
  const auto find = [&](const Ended& call, const std::string* text) {
    if (!may_match(call)) return;
    if (query.ended_before_ns() == 0 || call.event.end + to_wall < query.ended_before_ns())
      found.push_back({call.event.end, &call, text});
  };
  for (const Ended& call : ended_) find(call, nullptr);
  for (const Failure& call : failures_) find(call, &call.text);
  std::make_heap(found.begin(), found.end());
  size_t bytes = 0;
  proto::TaskRow row;
  for (; !found.empty(); found.pop_back()) {
    std::pop_heap(found.begin(), found.end());
    row.Clear();
    Fill(*found.back().call, found.back().text, to_wall, row);
    if (!Matches(row, query)) continue;
    if (limit == 0 || bytes > kMaxStateBytes) {
      answer.set_truncated(true);
      break;
    }
    --limit;
    bytes += row.ByteSizeLong();
    *answer.add_tasks() = row;
  }
  answer.set_events_lost(answer.events_lost() + lost_);
}

void TaskHistory::SumUp(const Process& process,
                        absl::btree_map<FunctionKey, FunctionFigures>& sums) {
  const JobNumber job = process.reader.job();
  for (size_t i = 0; i < process.reader.functions(); ++i) {
    const FunctionFigures figures = process.reader.FiguresOf(static_cast<uint16_t>(i));
    if (figures.ended[0] + figures.ended[1] + figures.ended[2] == 0) continue;
    sums[{job, figures.kind, figures.name}].Add(figures);
  }
}

namespace {

// Of `calls`, of which `gone` have left before, those from number `since` on and before `until`, the
// last `most`.
template <class Calls, class Visit>
void VisitLast(const Calls& calls, uint64_t gone, uint64_t since, uint64_t until, size_t most,
               Visit visit) {
  const uint64_t end = std::clamp(until, gone, gone + calls.size());
  const uint64_t first =
      std::max({gone, std::min(since, end), end - std::min<uint64_t>(most, end)});
  for (uint64_t i = first; i < end; ++i) visit(calls[i - gone]);
}

}  // namespace

void TaskHistory::VisitBetween(
    Arrived since, Arrived until, size_t most,
    absl::FunctionRef<void(const TaskEvent&, const Place&)> visit) const {
  const auto show = [&](const Ended& call) { visit(call.event, *call.place); };
  VisitLast(ended_, ended_gone_, since.ended, until.ended, most, show);
  VisitLast(failures_, failures_gone_, since.failures, until.failures, most, show);
}

void TaskHistory::VisitRunning(
    absl::FunctionRef<void(const RunningCall&, uint16_t thread, const Place&)> visit) {
  for (auto& [id, process] : processes_) {
    process->reader.VisitRunning([&](const RunningCall& call, uint16_t thread) {
      visit(call, thread, *PlaceOf(*process, call.function));
    });
  }
}

absl::btree_map<TaskHistory::FunctionKey, FunctionFigures> TaskHistory::Sums() const {
  absl::btree_map<FunctionKey, FunctionFigures> sums = of_the_gone_;
  for (const auto& [id, process] : processes_) SumUp(*process, sums);
  return sums;
}

void TaskHistory::AddFunctions(proto::StateAnswer& answer) const {
  for (const auto& [key, figures] : Sums()) {
    proto::FunctionRow& row = *answer.add_functions();
    row.set_job(std::get<JobNumber>(key));
    row.set_type(CallKindName(std::get<CallKind>(key)));
    row.set_name(std::get<std::string>(key));
    row.set_finished(figures.ended[0]);
    row.set_failed(figures.ended[1]);
    row.set_cancelled(figures.ended[2]);
    row.set_timed(figures.timed);
    row.set_run_ns(figures.run_ns);
    row.set_longest_ns(figures.longest_ns);
    for (const uint64_t count : figures.run_time) row.add_run_time(count);
  }
}

}  // namespace sheaf::telemetry
