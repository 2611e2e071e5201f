// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How submissions are forgotten: as users ask for it, and the oldest when there are many.
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"
#include "gcs/submissions/submission_service.h"

namespace sheaf {
namespace {

using S = proto::Submission;

constexpr int64_t kKeysKeptMs = 3'600'000;  // Clients repeat a request for half a minute.
constexpr size_t kMostKeysKept = 10'000;
constexpr size_t kTrimmedTogether = 256;

}  // namespace

// Of submissions that have ended, and of those that were deleted before.
std::vector<std::string> SubmissionService::Surplus() const {
  std::vector<std::string> ids = table_.Surplus(context_.options.max_ended_submissions);
  for (std::string& id : deleted_.Surplus(UnixMilliseconds() - kKeysKeptMs, kMostKeysKept))
    ids.push_back(std::move(id));
  return ids;
}

// One that has ended, or was deleted. What a repeat of its request is known by takes the place of
// one whose request had a key.
Outcome SubmissionService::PlanForgetting(const std::string& id) {
  Outcome outcome;
  const SubmissionEntry* entry = table_.Find(id);
  if (entry == nullptr || entry->info.idempotency_key().empty()) {
    outcome.writes = {{Table::kSubmissions, id, std::nullopt}};
    outcome.apply = [this, id] {
      table_.Erase(id);
      deleted_.Erase(id);
    };
    return outcome;
  }
  S rest = DeletedSubmissions::RestOf(entry->info, UnixMilliseconds());
  outcome.writes = {{Table::kSubmissions, id, rest.SerializeAsString()}};
  outcome.apply = [this, id, rest = std::move(rest)] {
    table_.Erase(id);
    deleted_.Put(rest);
  };
  return outcome;
}

void SubmissionService::Delete(CallPtr call, const proto::DeleteSubmission& request) {
  const std::string& id = request.submission_id();
  context_.pipeline.Run(std::move(call), {LatchOf(id)}, [this, id]() -> Outcome {
    const SubmissionEntry* entry = table_.Find(id);
    if (entry != nullptr && HasEnded(entry->info.state())) return PlanForgetting(id);
    Outcome refused;
    refused.reply = entry == nullptr
                        ? NoSuchSubmission(id)
                        : ErrorReply(ErrorKind::kInvalidArgument,
                                     absl::StrCat("Attempted to delete job '", id,
                                                  "', but it is in a non-terminal state ",
                                                  S::State_Name(entry->info.state()), "."));
    return refused;
  });
}

void SubmissionService::TellForgotten(const CallPtr& call, NodeNumber node,
                                      const proto::ForgottenSubmissions& asked) const {
  proto::GcsReply reply;
  proto::ForgottenSubmissions* forgotten = reply.mutable_forgotten_submissions();
  for (const std::string& id : asked.submission_ids()) {
    const SubmissionEntry* entry = table_.Find(id);
    // The log of one that waits is that of another, which had this name before.
    if (entry == nullptr || entry->info.state() == S::PENDING || entry->info.node() != node)
      forgotten->add_submission_ids(id);
  }
  context_.pipeline.Answer(call, std::move(reply));
}

// Under the latch of each, as its id may be another's by the time that it is looked at.
void SubmissionService::Trim() {
  if (trims_) return;  // A slow disk would get one command more with each tick.
  std::vector<std::string> ids = Surplus();
  if (ids.empty()) return;
  trims_ = true;
  if (ids.size() > kTrimmedTogether) ids.resize(kTrimmedTogether);
  std::vector<std::string> latches;
  for (const std::string& id : ids) latches.push_back(LatchOf(id));
  context_.pipeline.Run(
      nullptr, std::move(latches),
      [this, ids]() -> Outcome {
        Outcome outcome;
        std::vector<std::function<void()>> applied;
        const std::vector<std::string> surplus = Surplus();
        const std::set<std::string_view> still(surplus.begin(), surplus.end());
        for (const std::string& id : ids) {
          if (!still.contains(id)) continue;
          Outcome one = PlanForgetting(id);
          outcome.writes.insert(outcome.writes.end(), one.writes.begin(), one.writes.end());
          applied.push_back(std::move(one.apply));
        }
        outcome.apply = [this, applied = std::move(applied)] {
          for (const auto& apply : applied) apply();
          trims_ = false;
        };
        return outcome;
      },
      [this] { trims_ = false; });
}

}  // namespace sheaf
