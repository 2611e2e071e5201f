// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/task_collector.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/signal_mask.h"

namespace sheaf::telemetry {
namespace {

constexpr Nanos kLookWhileBusy = 250 * kMillisecond;
constexpr Nanos kLookWhileQuiet = kSecond;

std::string NamesOfSeries() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kHostSeries; ++i) names.emplace_back(NameOf(static_cast<HostSeries>(i)));
  return absl::StrJoin(names, ", ");
}

}  // namespace

TaskCollector::TaskCollector(std::unique_ptr<HostFigures> host, SpanQueue* spans,
                             size_t history_bytes)
    : history_(history_bytes), host_(std::move(host)) {
  if (spans != nullptr) {
    history_.set_sink([spans](const auto&... call) { spans->Add(call...); });
  }
  {
    const MutexLock lock(mutex_);
    last_host_.fill(std::numeric_limits<float>::quiet_NaN());
  }
  const AllSignalsBlocked blocked;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "task-events");
}

TaskCollector::~TaskCollector() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void TaskCollector::Push(Step step) {
  {
    const MutexLock lock(mutex_);
    steps_.push_back(std::move(step));
  }
  changed_.NotifyAll();
}

void TaskCollector::Add(ProcessId process, int32_t os_pid, std::shared_ptr<Mapping> segment) {
  Push([this, process, os_pid, segment = std::move(segment)] {
    const std::byte* const bytes = std::as_const(*segment).data();
    history_.Add(process, os_pid, EventPageOf(bytes));
    profile_.Add(process, ProfilePageOf(bytes),
                 [reader = EventReader(EventPageOf(bytes))] { return reader.job(); });
    segments_[process] = segment;
    pids_[process] = os_pid;
  });
}

void TaskCollector::Remove(ProcessId process) {
  Push([this, process] {
    history_.Remove(process);
    profile_.Remove(process, MonotonicNow());
    segments_.erase(process);
    pids_.erase(process);
  });
}

void TaskCollector::Ask(proto::StateQuery query, uint32_t limit,
                        std::function<void(proto::StateAnswer)> done) {
  Push([this, query = std::move(query), limit, done = std::move(done)] {
    proto::StateAnswer answer;
    answer.set_request(query.request());
    if (query.what() == proto::StateQuery::SERIES) {
      AddSeries(query, answer);
      return done(std::move(answer));
    }
    Read();
    if (query.what() == proto::StateQuery::FUNCTIONS) {
      history_.AddFunctions(answer);
    } else if (query.what() == proto::StateQuery::DIGEST) {
      const Nanos now = MonotonicNow();
      digests_.Fill(query, history_, LastHost(), now, ToWall(), *answer.add_digests());
    } else if (query.what() == proto::StateQuery::PROFILE) {
      profile_.AddProfile(query, limit, ToWall(), answer);
    } else {
      history_.AddTasks(query, limit, ToWall(), answer);
    }
    done(std::move(answer));
  });
}

HostSample TaskCollector::LastHost() {
  const MutexLock lock(mutex_);
  return last_host_;
}

void TaskCollector::LookAtHost(Nanos now) {
  std::vector<int32_t> pids;
  for (const auto& [process, pid] : pids_) pids.push_back(pid);
  const HostSample sample = host_->Look(now, pids);
  series_.Add(now, sample);
  const MutexLock lock(mutex_);
  last_host_ = sample;
}

void TaskCollector::AddSeries(const proto::StateQuery& query, proto::StateAnswer& answer) const {
  std::vector<HostSeries> wanted;
  for (const std::string& name : query.series()) {
    const std::optional<HostSeries> series = FindSeries(name);
    if (!series) {
      answer.set_error(absl::StrCat("there is no series '", name.substr(0, 80), "'; there are ",
                                    NamesOfSeries()));
      return;
    }
    wanted.push_back(*series);
  }
  if (host_ == nullptr) return;
  for (size_t i = 0; query.series().empty() && i < kHostSeries; ++i) {
    wanted.push_back(static_cast<HostSeries>(i));
  }
  const Nanos unix_at_zero = UnixNow() - MonotonicNow();
  for (const HostSeries series : wanted) {
    const Nanos from = query.from_unix_ms() * kMillisecond - unix_at_zero;
    const SeriesRing::Points points = series_.Read(series, from);
    proto::SeriesRow& row = *answer.add_series();
    row.set_name(std::string(NameOf(series)));
    row.set_first_unix_ms((points.first + unix_at_zero) / kMillisecond);
    row.set_period_ms(SeriesRing::kPeriod / kMillisecond);
    for (const float value : points.values) row.add_values(value);
  }
  for (const auto& [process, pid] : pids_) {
    const auto figures = host_->processes().find(pid);
    if (figures == host_->processes().end()) continue;
    proto::ProcessFiguresRow& row = *answer.add_process_figures();
    row.set_process(process.packed());
    row.set_os_pid(pid);
    row.set_cpus(figures->second.cpus);
    row.set_memory_bytes(figures->second.memory_bytes);
  }
}

// The same in each answer, unless the clock was set: a page of calls begins where the one before
// ended, by their times, and two readings of two clocks differ by some nanoseconds.
Nanos TaskCollector::ToWall() {
  constexpr Nanos kSet = 5 * kMillisecond;
  const Nanos now = UnixNow() - MonotonicNow();
  if (std::abs(now - to_wall_) > kSet) to_wall_ = now;
  return to_wall_;
}

bool TaskCollector::Read() {
  const bool ended = history_.Read();
  lost_.store(history_.lost(), std::memory_order_relaxed);
  return profile_.Read(MonotonicNow()) || ended;
}

void TaskCollector::Run() {
  Nanos look_at = MonotonicNow();
  Nanos look_at_host = host_ == nullptr ? kForever : look_at;
  while (true) {
    std::deque<Step> steps;
    {
      const MutexLock lock(mutex_);
      while (steps_.empty() && !ending_) {
        const Nanos now = MonotonicNow();
        const Nanos next = std::min(segments_.empty() ? kForever : look_at, look_at_host);
        if (now >= next) break;
        if (next == kForever) {
          changed_.Wait(mutex_);
        } else {
          changed_.WaitFor(mutex_, next - now);
        }
      }
      if (steps_.empty() && ending_) return;
      steps = std::exchange(steps_, {});
    }
    for (Step& step : steps) step();
    if (const Nanos now = MonotonicNow(); now >= look_at_host) {
      LookAtHost(now);
      look_at_host = now + SeriesRing::kPeriod;
    }
    if (segments_.empty() || MonotonicNow() < look_at) continue;
    const bool news = Read();
    look_at = MonotonicNow() + (news ? kLookWhileBusy : kLookWhileQuiet);
  }
}

}  // namespace sheaf::telemetry
