// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/node_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/status_macros.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAnswerTime = 10 * kSecond;

absl::StatusOr<proto::StateAnswer> AskAboutLogs(const AskNode& ask,
                                                const proto::StateQuery& query) {
  absl::StatusOr<proto::StateAnswer> answer = ask(query, kAnswerTime);
  if (!answer.ok()) return absl::UnavailableError(answer.status().message());
  if (answer->error().empty()) return answer;
  switch (static_cast<ErrorKind>(answer->error_kind())) {
    case ErrorKind::kInvalidArgument:
      return absl::InvalidArgumentError(answer->error());
    case ErrorKind::kNotFound:
      return absl::NotFoundError(answer->error());
    case ErrorKind::kNodeDied:
      return absl::AbortedError(answer->error());
    default:
      return absl::UnavailableError(answer->error());
  }
}

}  // namespace

absl::StatusOr<proto::StateAnswer> ListLogs(const AskNode& ask, NodeNumber node,
                                            const std::string& glob) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::LOG_LIST);
  query.mutable_log()->set_node(node);
  query.mutable_log()->set_name(glob);
  return AskAboutLogs(ask, query);
}

absl::StatusOr<proto::LogPiece> NodeLog::Ask(proto::LogQuestion question, uint32_t most) {
  question.set_node(log_.node);
  question.set_name(log_.name);
  question.set_most_bytes(most);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::LOG_READ);
  *query.mutable_log() = std::move(question);
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, AskAboutLogs(ask_, query));
  offset_ = answer.log().next();
  mark_ = answer.log().mark();
  return std::move(*answer.mutable_log());
}

absl::StatusOr<proto::LogPiece> NodeLog::Last(int64_t lines, uint32_t most) {
  proto::LogQuestion question;
  question.set_from_end(true);
  question.set_lines(lines < 0 ? UINT64_MAX : static_cast<uint64_t>(lines));
  question.set_only_file(log_.only_file);
  return Ask(std::move(question), most);
}

absl::StatusOr<proto::LogPiece> NodeLog::Next(uint32_t most) {
  proto::LogQuestion question;
  question.set_offset(offset_);
  question.set_mark(mark_);
  return Ask(std::move(question), most);
}

std::string NoteOn(const proto::LogPiece& piece, uint64_t wanted) {
  if (piece.anew()) return "[sheaf: this log was begun anew]\n";
  if (piece.offset() <= wanted) return "";
  if (wanted == 0)
    return absl::StrCat("[sheaf: the first ", piece.offset(), " bytes of this log are left out]\n");
  return absl::StrCat("[sheaf: ", piece.offset() - wanted,
                      " bytes of this log are not kept any more]\n");
}

}  // namespace sheaf::dashboard
