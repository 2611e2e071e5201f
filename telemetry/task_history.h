// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The ended calls of the processes of one node, the last ones, and exact counts by function; also of
// processes that are gone. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "telemetry/event_reader.h"

namespace sheaf::telemetry {

class TaskHistory {
 public:
  // How much it keeps, in bytes; the oldest calls go. Failures have a tenth of it to themselves.
  explicit TaskHistory(size_t bytes);
  // Of so many functions of processes that are gone it has the counts; those of the oldest jobs go
  // together, as those of job 0.
  static constexpr size_t kMostFunctionsOfTheGone = 5'000;
  TaskHistory(const TaskHistory&) = delete;
  TaskHistory& operator=(const TaskHistory&) = delete;

  struct Place;
  // From now on each call that is taken in is told to `sink`, too.
  using Sink = std::function<void(const TaskEvent&, const std::shared_ptr<const Place>&,
                                  std::string_view text, const TraceContext& trace)>;
  void set_sink(Sink sink) { sink_ = std::move(sink); }

  // `page` stays valid until Remove.
  void Add(ProcessId process, int32_t os_pid, const EventPage& page);
  // Reads a last time.
  void Remove(ProcessId process);
  // Takes in what has been recorded since. True: there was something.
  bool Read();

  // Adds to `answer` the ended calls that `query` asks for, the last ones first, at most `limit`, and
  // says whether there are more. `to_wall`: wall time less monotonic time.
  void AddTasks(const proto::StateQuery& query, uint32_t limit, Nanos to_wall,
                proto::StateAnswer& answer) const;
  void AddFunctions(proto::StateAnswer& answer) const;
  // Numbers of calls as they were taken in, from 0: of the next one that ends, and that fails.
  struct Arrived {
    uint64_t ended = 0, failures = 0;
  };
  Arrived arrived() const {
    return {ended_gone_ + ended_.size(), failures_gone_ + failures_.size()};
  }
  // What is the same for all calls of a function in a process; shared by these calls.
  struct Place {
    ProcessId process;
    int32_t os_pid = 0;
    JobNumber job = 0;
    ActorId actor;
    std::string function;
    CallKind kind = CallKind::kTask;
  };
  // Calls `visit` with those from `since` on and before `until`, at most `most` of either, the last
  // ones.
  void VisitBetween(Arrived since, Arrived until, size_t most,
                    absl::FunctionRef<void(const TaskEvent&, const Place&)> visit) const;
  // Calls `visit` with what runs now.
  void VisitRunning(
      absl::FunctionRef<void(const RunningCall&, uint16_t thread, const Place&)> visit);
  using FunctionKey = std::tuple<JobNumber, CallKind, std::string>;
  // Exact counts, by function.
  absl::btree_map<FunctionKey, FunctionFigures> Sums() const;
  uint64_t lost() const { return lost_; }
  size_t size() const { return ended_.size() + failures_.size(); }

 private:
  struct Process {
    Process(ProcessId process, int32_t os_pid, const EventPage& page)
        : process(process), os_pid(os_pid), reader(page) {}
    ProcessId process;
    int32_t os_pid;
    EventReader reader;
    std::vector<std::shared_ptr<const Place>> places;  // By number of the function.
  };
  struct Ended {
    TaskEvent event;
    std::shared_ptr<const Place> place;
  };
  struct Failure : Ended {
    std::string text;
  };
  bool ReadFrom(Process& process);
  void FoldOldest();
  std::shared_ptr<const Place> PlaceOf(Process& process, uint16_t function);
  static bool Matches(const proto::TaskRow& row, const proto::StateQuery& query);
  static void Fill(const Ended& call, const std::string* text, Nanos to_wall, proto::TaskRow& row);
  static void SumUp(const Process& process, absl::btree_map<FunctionKey, FunctionFigures>& sums);

  const size_t most_ended_, most_failures_;
  absl::btree_map<ProcessId, std::unique_ptr<Process>> processes_;
  absl::btree_map<FunctionKey, FunctionFigures> of_the_gone_;
  std::deque<Ended> ended_;                      // The oldest first.
  std::deque<Failure> failures_;                 // The same.
  uint64_t ended_gone_ = 0, failures_gone_ = 0;  // That were in front of these.
  uint64_t lost_ = 0;
  Sink sink_;
};

}  // namespace sheaf::telemetry
