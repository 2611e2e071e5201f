// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/log_tails.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error_kind.h"
#include "dashboard/gcs_question.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kPeriod = 100 * kMillisecond;
constexpr Nanos kAskPeriod = 500 * kMillisecond;
constexpr Nanos kAnswerTime = kSecond;
constexpr Nanos kGiveUp = 60 * kSecond;
constexpr size_t kChunkBytes = 32 << 10;
constexpr int kChunksPerTurn = 64;  // Of one tail, before the others have theirs.
constexpr uint16_t kAllSaid = 1000;
constexpr uint16_t kCannotGoOn = 1011;

bool HasEnded(proto::Submission::State state) {
  return state == proto::Submission::SUCCEEDED || state == proto::Submission::FAILED ||
         state == proto::Submission::STOPPED;
}

// Without the first bytes of a character whose others are still to come.
size_t WholeCharacters(const std::string& text) {
  const size_t begin = text.size() < 4 ? 0 : text.size() - 4;
  for (size_t at = text.size(); at > begin; --at) {
    const auto byte = static_cast<unsigned char>(text[at - 1]);
    if (byte < 0x80) return text.size();
    if (byte < 0xC0) continue;  // In the middle of one.
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return at - 1 + length > text.size() ? at - 1 : text.size();
  }
  return text.size();
}

}  // namespace

LogTails::LogTails(AskNode ask)
    : ask_(std::move(ask)), thread_({"job-tails", kPeriod, [this] { Tick(); }}) {}

void LogTails::Add(std::string submission_id, std::string path, off_t offset,
                   std::shared_ptr<http::Stream> stream) {
  auto tail = std::make_shared<Tail>();
  tail->id = std::move(submission_id);
  tail->path = std::move(path);
  tail->offset = offset;
  tail->stream = std::move(stream);
  thread_.Post([this, tail] {
    if (Step(*tail)) tails_.push_back(std::move(*tail));
  });
}

void LogTails::Tick() {
  std::erase_if(tails_, [this](Tail& tail) { return !Step(tail); });
}

// False: it is over.
bool LogTails::Step(Tail& tail) {
  if (!tail.stream->open()) return false;
  const bool had_ended = tail.has_ended;  // All that it printed was there by then.
  const bool has_room = SendMore(tail);
  if (has_room && had_ended && tail.unsent.empty()) {
    tail.stream->Close(kAllSaid, "");
    return false;
  }
  if (!tail.has_ended && MonotonicNow() >= tail.next_question) AskState(tail);
  if (tail.unanswered_since != 0 && MonotonicNow() - tail.unanswered_since > kGiveUp) {
    tail.stream->Close(kCannotGoOn, "the head does not answer");
    return false;
  }
  return true;
}

// False: the viewer has not taken what it was sent, or there is more for the next turn.
bool LogTails::SendMore(Tail& tail) {
  if (!tail.file.valid()) {
    tail.file = UniqueFd(open(tail.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!tail.file.valid()) return true;  // Nothing is printed yet.
  }
  for (int chunk = 0; chunk < kChunksPerTurn; ++chunk) {
    if (!tail.unsent.empty()) {
      if (!tail.stream->Write(tail.unsent)) return false;
      tail.unsent.clear();
    }
    std::string bytes(kChunkBytes, '\0');
    const ssize_t count = pread(tail.file.get(), bytes.data(), bytes.size(), tail.offset);
    if (count <= 0) return true;
    bytes.resize(static_cast<size_t>(count));
    const size_t whole = WholeCharacters(bytes);
    // What cannot be the beginning of a character any more goes as it is.
    if (whole > 0) bytes.resize(whole);
    if (whole == 0 && !tail.has_ended) return true;
    tail.offset += static_cast<off_t>(bytes.size());
    tail.unsent = std::move(bytes);
  }
  return false;
}

void LogTails::AskState(Tail& tail) {
  proto::GcsRequest request;
  request.mutable_get_submission()->set_submission_id(tail.id);
  const absl::StatusOr<proto::GcsReply> reply = AskGcs(ask_, request, kAnswerTime);
  tail.next_question = MonotonicNow() + kAskPeriod;
  if (!reply.ok()) {
    if (tail.unanswered_since == 0) tail.unanswered_since = MonotonicNow();
    return;
  }
  tail.unanswered_since = 0;
  // One that was deleted has ended before.
  tail.has_ended = reply->error() == static_cast<uint32_t>(ErrorKind::kNotFound) ||
                   HasEnded(reply->submission().state());
}

}  // namespace sheaf::dashboard
