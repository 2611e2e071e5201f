// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/gcs_question.h"

#include <string>

namespace sheaf::dashboard {
namespace {

// The node gives a question to the GCS up after a second.
constexpr Nanos kOneTry = 5 * kSecond;

}  // namespace

absl::StatusOr<proto::GcsReply> AskGcs(const AskNode& ask, const proto::GcsRequest& request,
                                       Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::KEY_VALUE);
  query.set_key_value(request.SerializeAsString());
  while (true) {
    const absl::StatusOr<proto::StateAnswer> answer = ask(query, kOneTry);
    if (!answer.ok()) return absl::UnavailableError(answer.status().message());
    if (!answer->error().empty()) return absl::UnavailableError(answer->error());
    proto::GcsReply reply;
    if (!answer->key_value().empty()) {
      if (reply.ParseFromString(answer->key_value())) return reply;
      return absl::UnavailableError("the GCS gave an answer that cannot be read");
    }
    if (MonotonicNow() >= deadline)
      return absl::UnavailableError("the head does not answer; try again");
  }
}

}  // namespace sheaf::dashboard
