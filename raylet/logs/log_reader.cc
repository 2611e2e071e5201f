// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_reader.h"

#include <utility>

#include "base/error_kind.h"

namespace sheaf {
namespace {

ErrorKind KindOf(const absl::Status& status) {
  if (absl::IsNotFound(status)) return ErrorKind::kNotFound;
  return absl::IsInvalidArgument(status) ? ErrorKind::kInvalidArgument : ErrorKind::kSystem;
}

}  // namespace

proto::StateAnswer AnswerAboutLogs(const LogFiles& files, const proto::StateQuery& query) {
  proto::StateAnswer answer;
  absl::Status status;
  if (query.what() == proto::StateQuery::LOG_LIST) {
    status = files.List(query.log().name(), &answer);
  } else {
    absl::StatusOr<proto::LogPiece> piece = files.Read(query.log());
    status = piece.status();
    if (piece.ok()) *answer.mutable_log() = *std::move(piece);
  }
  if (!status.ok()) {
    answer.set_error(std::string(status.message()));
    answer.set_error_kind(static_cast<uint32_t>(KindOf(status)));
  }
  return answer;
}

void LogReader::Ask(const proto::StateQuery& query, std::function<void(proto::StateAnswer)> done) {
  Thread().Post([this, query, done = std::move(done)]() mutable {
    loop_.Post([done = std::move(done), answer = AnswerAboutLogs(files_, query)]() mutable {
      done(std::move(answer));
    });
  });
}

void LogReader::Remove(std::vector<std::string> names) {
  Thread().Post([this, names = std::move(names)] {
    for (const std::string& name : names) files_.Remove(name);
  });
}

ThreadExecutor& LogReader::Thread() {
  if (thread_ == nullptr) thread_ = std::make_unique<ThreadExecutor>("logs");
  return *thread_;
}

}  // namespace sheaf
