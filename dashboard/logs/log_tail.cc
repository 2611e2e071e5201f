// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_tail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "dashboard/gcs_question.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kStatePeriod = 500 * kMillisecond;
constexpr Nanos kStateTime = kSecond;
constexpr Nanos kGiveUp = 60 * kSecond;

bool HasEnded(proto::Submission::State state) {
  return state == proto::Submission::SUCCEEDED || state == proto::Submission::FAILED ||
         state == proto::Submission::STOPPED;
}

}  // namespace

bool LogTail::Trouble::IsTooLong(bool failed) {
  if (!failed) since_ = 0;
  if (failed && since_ == 0) since_ = MonotonicNow();
  return since_ != 0 && MonotonicNow() - since_ > kGiveUp;
}

LogTail::Step LogTail::Next() {
  if (!tailed_.submission_id.empty()) {
    if (std::optional<Step> waits = AskState()) return *std::move(waits);
  }
  const bool had_ended = submission_has_ended_;  // All that it printed was there by then.
  const uint64_t wanted = tailed_.log.offset();
  uint64_t most = kLogPieceBytes / tailed_.text.most_per_byte();
  if (tailed_.until) most = std::min(most, *tailed_.until - std::min(*tailed_.until, wanted));
  if (most == 0) return Finish(End::kAll, "");
  const absl::StatusOr<proto::LogPiece> piece = tailed_.log.Next(static_cast<uint32_t>(most));
  if (!piece.ok()) return OnTrouble(piece.status(), had_ended);
  trouble_.IsTooLong(false);
  return OnPiece(*piece, wanted, had_ended);
}

LogTail::Step LogTail::OnPiece(const proto::LogPiece& piece, uint64_t wanted, bool had_ended) {
  const std::string note = NoteOn(piece, wanted);
  if (!note.empty() && tailed_.until) return Finish(End::kAll, "");  // There it is another log.
  if (!note.empty() && tailed_.is_counted) return Finish(End::kBroken, "");
  std::string text = tailed_.text.Words(note);
  text += tailed_.text.Next(piece.bytes());
  if (!piece.bytes().empty()) return {std::move(text), End::kNone, true};
  const bool is_submission = !tailed_.submission_id.empty();
  if (tailed_.until || (is_submission && had_ended)) return Finish(End::kAll, "", std::move(text));
  if (!is_submission && piece.ended())
    return Finish(End::kAll, "who wrote this log has ended", std::move(text));
  return {std::move(text)};
}

LogTail::Step LogTail::OnTrouble(const absl::Status& status, bool had_ended) {
  const bool is_submission = !tailed_.submission_id.empty();
  if (absl::IsNotFound(status) && is_submission) {
    // Nothing is printed yet; or it was deleted.
    return had_ended ? Finish(End::kAll, "") : Step{};
  }
  if (absl::IsNotFound(status)) return Finish(End::kBroken, "this log is gone");
  if (absl::IsInvalidArgument(status)) return Finish(End::kBroken, status.message());
  if (absl::IsAborted(status) && (had_ended || !is_submission))
    return Finish(had_ended ? End::kAll : End::kBroken, status.message());
  if (!trouble_.IsTooLong(true)) return {};
  return Finish(End::kBroken, absl::StrCat(status.message(), ", for a minute now"));
}

LogTail::Step LogTail::Finish(End end, absl::string_view words, std::string text) {
  text += tailed_.text.Last();
  if (!words.empty() && !tailed_.is_counted)
    text += tailed_.text.Words(absl::StrCat("[sheaf: ", words, "]\n"));
  return {std::move(text), end};
}

std::optional<LogTail::Step> LogTail::AskState() {
  if (!submission_has_ended_ && MonotonicNow() >= next_question_) {
    proto::GcsRequest request;
    request.mutable_get_submission()->set_submission_id(tailed_.submission_id);
    const absl::StatusOr<proto::GcsReply> reply = AskGcs(ask_, request, kStateTime);
    next_question_ = MonotonicNow() + kStatePeriod;
    if (head_trouble_.IsTooLong(!reply.ok()))
      return Finish(End::kBroken, "the head has not answered for a minute");
    if (reply.ok()) OnState(*reply);
  }
  if (tailed_.log.log().node != 0) return std::nullopt;
  return submission_has_ended_ ? Finish(End::kAll, "") : Step{};
}

void LogTail::OnState(const proto::GcsReply& reply) {
  // One that was deleted has ended before.
  submission_has_ended_ = reply.error() == static_cast<uint32_t>(ErrorKind::kNotFound) ||
                          HasEnded(reply.submission().state());
  const NodeNumber node = reply.submission().node();
  if (node == 0 || node == tailed_.log.log().node) return;
  // It is placed; or the node that it was given to before has given it back.
  NodeLog log(ask_, {node, tailed_.log.log().name});
  log.Seek(tailed_.log.offset());
  tailed_.log = std::move(log);
}

}  // namespace sheaf::dashboard
