// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submissions by pages, the newest first.
#include <algorithm>
#include <utility>

#include "gcs/submissions/submission_service.h"

namespace sheaf {
namespace {

constexpr size_t kMaxReplyBytes = 8 << 20;
constexpr uint32_t kDefaultPage = 1000;
constexpr uint32_t kMostListed = 10'000;

}  // namespace

void SubmissionService::List(const CallPtr& call, const proto::ListSubmissions& request) const {
  proto::GcsReply reply;
  proto::SubmissionList* list = reply.mutable_submissions();
  const uint32_t limit =
      std::min(request.limit() == 0 ? kDefaultPage : request.limit(), kMostListed);
  const std::map<uint64_t, std::string>& all = table_.by_number();
  auto at = request.before() == 0 ? all.end() : all.lower_bound(request.before());
  size_t bytes = 0;
  while (at != all.begin()) {
    --at;
    proto::Submission shown = Shown(*table_.Find(at->second));
    bytes += shown.ByteSizeLong();
    const auto listed = static_cast<uint32_t>(list->submissions_size());
    if (listed >= limit || (listed > 0 && bytes > kMaxReplyBytes)) {
      list->set_more(true);
      break;
    }
    *list->add_submissions() = std::move(shown);
  }
  context_.pipeline.Answer(call, std::move(reply));
}

}  // namespace sheaf
