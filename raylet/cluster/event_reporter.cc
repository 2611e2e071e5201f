// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/event_reporter.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

bool WasWanted(const proto::Death& death) {
  return death.cause() == proto::Death::KILLED || death.cause() == proto::Death::LEFT ||
         death.cause() == proto::Death::NODE_DIED ||
         (death.cause() == proto::Death::EXITED && death.code() == 0);
}

}  // namespace

void EventReporter::OnDied(const LeaseSpec* spec, int32_t os_pid, const proto::Death& death) {
  using E = proto::EventRow;
  const bool out_of_memory = death.cause() == proto::Death::OUT_OF_MEMORY;
  const bool is_actor = spec != nullptr && spec->actor;
  if (WasWanted(death) || (!out_of_memory && !is_actor)) return;
  const std::string what = spec == nullptr
                               ? "a process"
                               : absl::StrCat(is_actor ? "actor " : "a worker of ", spec->name);
  Report(out_of_memory ? E::OUT_OF_MEMORY : E::ACTOR_DIED, E::ERROR,
         absl::StrCat(what, " (pid ", os_pid, ") died: ", death.message()),
         is_actor ? spec->actor_id.ToHex() : "");
}

void EventReporter::OnInfeasible(const LeaseSpec* spec, const std::string& words) {
  const std::string what =
      spec == nullptr ? "a task"
                      : absl::StrCat(spec->name, ", which asks for ", spec->resources.ToString());
  Report(proto::EventRow::INFEASIBLE, proto::EventRow::WARNING, absl::StrCat(what, ": ", words));
}

void EventReporter::OnDiskFailures(uint64_t failures) {
  if (failures <= std::exchange(disk_failures_, failures)) return;
  Report(proto::EventRow::SPILL_FAILED, proto::EventRow::ERROR,
         "objects cannot be written to, or read from, the disk that the store spills to");
}

void EventReporter::Report(proto::EventRow::Kind kind, proto::EventRow::Severity severity,
                           std::string words, std::string id) {
  const Nanos now = clock_.Now();
  if (const auto known = said_.find(words); known != said_.end() && now < known->second) return;
  if (now >= second_end_) {
    second_end_ = Deadline(now, kSecond);
    in_second_ = 0;
  }
  if (++in_second_ > kMostPerSecond || !gcs_.up()) {
    ++dropped_;
    return;
  }
  if (said_.size() >= kMaxRemembered) {
    absl::erase_if(said_, [now](const auto& entry) { return entry.second <= now; });
    if (said_.size() >= kMaxRemembered) said_.clear();
  }
  said_[words] = Deadline(now, kSameAgain);
  if (dropped_ > 0) {
    absl::StrAppend(&words, " (and ", std::exchange(dropped_, 0), " more before)");
  }
  proto::GcsRequest request;
  proto::EventRow& event = *request.mutable_report_event()->mutable_event();
  event.set_kind(kind);
  event.set_severity(severity);
  event.set_message(std::move(words));
  event.set_id(std::move(id));
  gcs_.Report(std::move(request));
}

}  // namespace sheaf
