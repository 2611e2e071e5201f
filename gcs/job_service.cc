// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/job_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"

namespace sheaf {
namespace {

constexpr char kLastJobKey[] = "last_job";

// What listings and subscribers need not (and, of the environment, should not) see.
proto::JobInfo Public(const proto::JobInfo& info) {
  proto::JobInfo copy = info;
  copy.mutable_start()->clear_argv();
  copy.mutable_start()->clear_environ();
  copy.mutable_start()->clear_default_environment();
  return copy;
}

std::string JobLatch(JobNumber job) { return absl::StrCat("job/", job); }

}  // namespace

JobService::JobService(const GcsContext& context, std::function<void(JobNumber)> on_ended,
                       std::function<bool(JobNumber)> is_needed)
    : context_(context), on_ended_(std::move(on_ended)), is_needed_(std::move(is_needed)) {}

void JobService::LoadJob(std::string_view value) {
  proto::JobInfo info;
  if (info.ParseFromArray(value.data(), static_cast<int>(value.size())))
    table_.Put(std::move(info));
}

void JobService::LoadLastNumber(std::string_view value) {
  last_number_ = NumberFromRowKey<uint32_t>(value).value_or(0);
}

void JobService::Register(CallPtr call, const proto::RegisterJob& request) {
  const ProcessId driver = ProcessId::Unpack(request.driver());
  if (driver.node != call->client.node || driver.process == 0) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument,
                         absl::StrCat(driver.ToString(), " is no driver on the node that asks")));
  }
  context_.pipeline.Run(std::move(call), {absl::StrCat("driver/", request.driver())},
                        [this, request, driver]() -> Outcome {
                          Outcome outcome;
                          proto::JobRegistered* registered = outcome.reply.mutable_job_registered();
                          if (const proto::JobInfo* known = table_.FindByDriver(driver)) {
                            registered->set_job(known->job());
                            registered->set_name_space(known->start().name_space());
                            return outcome;
                          }
                          proto::JobInfo info;
                          info.set_job(++last_number_);  // Used up even if the write fails.
                          info.set_driver(request.driver());
                          *info.mutable_start() = request.start();
                          if (info.start().name_space().empty()) {
                            info.mutable_start()->set_name_space(absl::StrCat("job-", info.job()));
                          }
                          info.set_os_pid(request.os_pid());
                          info.set_start_time_unix_s(request.start_time_unix_s());
                          registered->set_job(info.job());
                          registered->set_name_space(info.start().name_space());
                          outcome.writes = {
                              {Table::kMeta, kLastJobKey, RowKey(last_number_)},
                              {Table::kJobs, RowKey(info.job()), info.SerializeAsString()}};
                          outcome.apply = [this, info] {
                            table_.Put(info);
                            Publish(info);
                            Tell(info);
                          };
                          return outcome;
                        });
}

void JobService::Finish(CallPtr call, const proto::FinishJob& request) {
  const proto::JobInfo* known = table_.Find(request.job());
  if (known == nullptr) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kNotFound, absl::StrCat("no job ", request.job())));
  }
  if (ProcessId::Unpack(known->driver()).node != call->client.node) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument,
                         "a job is finished by its driver or the driver's raylet"));
  }
  End(std::move(call), request.job(), request.failed() ? JobEvent::kFailed : JobEvent::kFinished);
}

void JobService::OnProcessGone(ProcessId process, const proto::Death& death) {
  const proto::JobInfo* job = table_.FindByDriver(process);
  if (job == nullptr || job->state() != proto::JobInfo::RUNNING) return;
  const bool well = death.cause() == proto::Death::LEFT ||
                    (death.cause() == proto::Death::EXITED && death.code() == 0);
  End(nullptr, job->job(), well ? JobEvent::kFinished : JobEvent::kFailed);
}

void JobService::EndWhere(const std::function<bool(ProcessId driver)>& is_gone) {
  std::vector<JobNumber> lost;
  for (const auto& [number, job] : table_.all()) {
    if (job.state() == proto::JobInfo::RUNNING && is_gone(ProcessId::Unpack(job.driver())))
      lost.push_back(number);
  }
  for (const JobNumber job : lost) End(nullptr, job, JobEvent::kFailed);
}

void JobService::End(CallPtr call, JobNumber job, JobEvent event) {
  context_.pipeline.Run(
      std::move(call), {JobLatch(job)},
      [this, job, event]() -> Outcome {
        unended_.erase(job);
        const proto::JobInfo* known = table_.Find(job);
        const auto next = known == nullptr ? std::nullopt : Next(known->state(), event);
        if (!next) return {};
        proto::JobInfo info = *known;
        info.set_state(*next);
        info.set_end_time_unix_s((context_.options.unix_ns_at_zero + context_.clock.Now()) /
                                 kSecond);
        Outcome outcome;
        outcome.writes = {{Table::kJobs, RowKey(job), info.SerializeAsString()}};
        outcome.vital = true;
        outcome.apply = [this, info] {
          table_.Put(info);
          Publish(info);
          Tell(info);
          on_ended_(info.job());
        };
        return outcome;
      },
      [this, job, event] { unended_[job] = event; });
}

std::vector<JobNumber> JobService::Surplus() const {
  std::vector<JobNumber> surplus;
  for (auto at = table_.all().begin();
       at != table_.all().end() &&
       surplus.size() + context_.options.max_remembered < table_.ended();
       ++at) {
    if (at->second.state() != proto::JobInfo::RUNNING && !is_needed_(at->first))
      surplus.push_back(at->first);
  }
  return surplus;
}

void JobService::List(const CallPtr& call) const {
  proto::GcsReply reply;
  reply.mutable_jobs();
  for (const auto& [number, job] : table_.all()) *reply.mutable_jobs()->add_jobs() = Public(job);
  context_.pipeline.Answer(call, std::move(reply));
}

void JobService::AddSnapshot(proto::Snapshot* snapshot) const {
  for (const auto& [number, job] : table_.all())
    *snapshot->add_items()->mutable_job() = Public(job);
}

void JobService::Tick() {
  for (const auto& [job, event] : std::exchange(unended_, {})) End(nullptr, job, event);
  if (Surplus().empty()) return;
  context_.pipeline.Run(nullptr, {"jobs/trim"}, [this]() -> Outcome {
    Outcome outcome;
    std::vector<JobNumber> surplus = Surplus();
    for (const JobNumber job : surplus)
      outcome.writes.push_back({Table::kJobs, RowKey(job), std::nullopt});
    outcome.apply = [this, surplus = std::move(surplus)] {
      for (const JobNumber job : surplus) table_.Erase(job);
    };
    return outcome;
  });
}

void JobService::Tell(const proto::JobInfo& info) {
  ++told_[info.state()];
  using E = proto::EventRow;
  context_.events.Add(
      E::JOB_STATE, info.state() == proto::JobInfo::FAILED ? E::WARNING : E::INFO,
      absl::StrCat("job ", info.job(), " is ", proto::JobInfo::State_Name(info.state()), ": ",
                   info.start().entrypoint()),
      {.node = ProcessId::Unpack(info.driver()).node, .job = info.job()});
}

void JobService::Publish(const proto::JobInfo& info) {
  if (!context_.publisher.HasSubscribers(proto::Subscribe::JOBS)) return;
  proto::Change change;
  *change.mutable_job() = Public(info);
  context_.publisher.Publish(proto::Subscribe::JOBS, "", "", change);
}

}  // namespace sheaf
