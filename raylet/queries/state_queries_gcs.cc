// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What comes of a question to the GCS: its answer, and what it says of itself.
#include "raylet/queries/state_queries.h"

namespace sheaf {

void StateQueries::OnGcsReply(uint64_t number, const proto::GcsReply& reply) {
  const auto it = queries_.find(number);
  if (it == queries_.end()) return;
  MergeGcs(reply, it->second.asked);
  it->second.groups = reply.groups();
  if (it->second.asked.message.what() == proto::StateQuery::STATUS) return AskGcsOfItself(number);
  it->second.waits_for_gcs = false;
  FinishIfComplete(number);
}

void StateQueries::AskGcsOfItself(uint64_t number) {
  proto::GcsRequest request;
  request.mutable_describe_cluster();
  deps_.gcs.Command(std::move(request), [this, number](const proto::GcsReply& itself) {
    const auto query = queries_.find(number);
    if (query == queries_.end()) return;
    query->second.waits_for_gcs = false;
    if (itself.cluster().read_only()) {
      query->second.asked.answer.set_words(
          "READ-ONLY, as its disk is full: names, detached actors, jobs and keys cannot change; "
          "free some space there");
    }
    FinishIfComplete(number);
  });
}

}  // namespace sheaf
