// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_state.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// An acknowledgement that has nothing to ride on leaves after this much at the latest.
constexpr uint64_t kAcknowledgeMessages = 64;
constexpr uint64_t kAcknowledgeBytes = 2 * kPieceBytes;

// What is written and not acknowledged: at least two pieces, so that one travels while the other is
// acknowledged; more while that takes no longer than kSwift, half of it after more than kSluggish.
constexpr uint64_t kLeastWindow = 2 * kPieceBytes;
constexpr uint64_t kFirstWindow = 4 * kPieceBytes;
constexpr Nanos kSwift = 250 * kMillisecond, kSluggish = 500 * kMillisecond;

size_t SizeOf(const std::shared_ptr<const std::string>& payload) {
  return payload == nullptr ? 0 : payload->size();
}

}  // namespace

LinkState::LinkState(const Options& options)
    : options_(options), window_(std::min(kFirstWindow, options.max_unacknowledged_bytes)) {}

void LinkState::Queue(const LinkFrame& frame) {
  SHEAF_CHECK(frame.body.size() <= kMaxFrameBytes, "a frame is too large for a link");
  if (open_frames_ > 0 && open_.size() + FrameRecordBytes(frame.body.size()) > kBatchBytes) {
    Seal();
  }
  AppendFrame(frame, &open_);
  ++open_frames_;
}

void LinkState::QueueAhead(const LinkFrame& frame) {
  SHEAF_CHECK(frame.body.size() <= kMaxFrameBytes, "a frame is too large for a link");
  std::string payload;
  AppendFrame(frame, &payload);
  for (Message& message : Cut(std::move(payload), 1, /*ahead=*/true)) {
    unacknowledged_bytes_ += SizeOf(message.payload);
    messages_.insert(messages_.begin() + static_cast<ptrdiff_t>(numbered_ + ahead_++),
                     std::move(message));
    ++next_sequence_;
  }
}

void LinkState::QueueRename(ProcessId name) {
  Seal();
  const uint64_t packed = name.packed();
  Push(
      {MessageKind::kRename, false, false, 0,
       std::make_shared<const std::string>(reinterpret_cast<const char*>(&packed), sizeof packed)});
  // What is queued ahead from here on is said under the new name: it goes behind this.
  ahead_ = messages_.size() - numbered_;
}

std::vector<LinkState::Message> LinkState::Cut(std::string payload, uint32_t frames, bool ahead) {
  std::vector<Message> messages;
  if (payload.size() <= kPieceBytes) {
    messages.push_back({MessageKind::kFrames, false, ahead, frames,
                        std::make_shared<const std::string>(std::move(payload))});
    return messages;
  }
  for (size_t at = 0; at < payload.size(); at += kPieceBytes) {
    const bool more = payload.size() - at > kPieceBytes;
    messages.push_back({MessageKind::kFrames, more, ahead, more ? 0 : frames,
                        std::make_shared<const std::string>(payload.substr(at, kPieceBytes))});
  }
  return messages;
}

void LinkState::Seal() {
  if (open_frames_ == 0) return;
  const uint32_t frames = std::exchange(open_frames_, 0);
  flushed_ = false;
  const size_t size = open_.size();
  std::string payload;
  payload.swap(open_);
  if (size > kPieceBytes) {
    for (Message& piece : Cut(std::move(payload), frames, /*ahead=*/false)) Push(std::move(piece));
    return;
  }
  Push({MessageKind::kFrames, false, false, frames,
        std::make_shared<const std::string>(std::move(payload))});
  // The next batch will be about as large.
  open_.reserve(std::min(size + size / 4, kBatchBytes + 4096));
}

void LinkState::Push(Message message) {
  unacknowledged_bytes_ += SizeOf(message.payload);
  messages_.push_back(std::move(message));
  ++next_sequence_;
}

void LinkState::Take(LinkState&& other) {
  Seal();
  other.Seal();
  for (Message& message : other.messages_) Push(std::move(message));
  other.messages_.clear();
  other.ahead_ = 0;
  other.unacknowledged_bytes_ = 0;
}

absl::StatusOr<uint64_t> LinkState::Connected(uint64_t peer_stream, uint64_t known_stream,
                                              uint64_t peer_has, Nanos now) {
  if (peer_stream != peer_stream_) {
    peer_stream_ = peer_stream;
    accepted_ = 0;
    handed_over_ = 0;
    for (std::string& partial : partial_) partial.clear();
    undelivered_.clear();
  }
  const size_t written = written_;
  if (known_stream == options_.stream) {
    SHEAF_RETURN_IF_ERROR(Acknowledged(peer_has, now));
  } else {
    // It knows nothing of this stream: what was never acknowledged begins with number 1. A payload
    // of which the former life took the first pieces died with it.
    DropMidPayload();
    next_sequence_ = messages_.size() + 1;
    numbered_ = 0;
    // Those that were queued ahead are ahead still.
    std::deque<Message> others;
    for (Message& message : std::exchange(messages_, {}))
      (message.ahead ? messages_ : others).push_back(std::move(message));
    ahead_ = messages_.size();
    std::move(others.begin(), others.end(), std::back_inserter(messages_));
  }
  const uint64_t again = std::min(written, messages_.size());
  written_ = 0;
  written_bytes_ = 0;
  acknowledged_ = 0;
  bytes_since_acknowledged_ = 0;
  unacknowledged_since_ = handed_over_ > 0 ? now : kForever;
  connected_ = true;
  last_heard_ = now;
  last_written_ = now;
  return again;
}

absl::Status LinkState::Acknowledged(uint64_t sequence, Nanos now) {
  if (sequence >= next_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("message ", sequence, " is acknowledged; only ",
                                                   next_sequence_ - 1, " were sent"));
  }
  while (!messages_.empty() && first_unacknowledged() <= sequence) {
    if (written_ > 0 && connected_) {
      const Message& first = messages_.front();
      if (first.written_at >= narrowed_at_) Adapt(now - first.written_at, SizeOf(first.payload));
    }
    DropFirst();
  }
  return absl::OkStatus();
}

// A message was acknowledged `delay` after it was written. What was written before the window was
// narrowed says nothing of the narrower one.
void LinkState::Adapt(Nanos delay, size_t bytes) {
  if (delay > kSluggish) {
    window_ = std::max(window_ / 2, std::min(kLeastWindow, options_.max_unacknowledged_bytes));
    narrowed_at_ = last_written_ + 1;
  } else if (delay < kSwift) {
    window_ = std::min(window_ + bytes, options_.max_unacknowledged_bytes);
  }
}

void LinkState::DropFirst() {
  const size_t size = SizeOf(messages_.front().payload);
  unacknowledged_bytes_ -= size;
  if (written_ > 0) {
    --written_;
    written_bytes_ -= size;
  }
  if (numbered_ > 0) {
    --numbered_;
  } else if (ahead_ > 0) {
    --ahead_;
  }
  mid_payload_[messages_.front().ahead] = messages_.front().more;
  messages_.pop_front();
}

// Of payloads whose first pieces are gone the others go too.
void LinkState::DropMidPayload() {
  std::erase_if(messages_, [this](const Message& message) {
    bool& gone = mid_payload_[message.ahead];
    if (!gone) return false;
    gone = message.more;
    unacknowledged_bytes_ -= SizeOf(message.payload);
    return true;
  });
}

std::optional<OutgoingMessage> LinkState::NextToWrite(Nanos now) {
  if (!connected_) return std::nullopt;
  if (written_ == messages_.size() && flushed_) Seal();
  if (written_ < messages_.size()) {
    Message& message = messages_[written_];
    const size_t size = SizeOf(message.payload);
    const uint64_t most = message.ahead ? options_.max_unacknowledged_bytes : window_;
    if (written_bytes_ == 0 || written_bytes_ + size <= most) {
      OutgoingMessage out;
      out.header.magic = kMessageMagic;
      out.header.kind = message.kind;
      out.header.more = message.more ? 1 : 0;
      out.header.ahead = message.ahead ? 1 : 0;
      out.header.frame_count = message.frames;
      out.header.payload_bytes = static_cast<uint32_t>(size);
      out.header.sequence = first_unacknowledged() + written_;
      out.header.acknowledged = Acknowledge();
      out.payload = message.payload;
      message.written_at = now;
      if (++written_ > numbered_) {
        numbered_ = written_;
        if (ahead_ > 0) --ahead_;
      }
      written_bytes_ += size;
      last_written_ = now;
      return out;
    }
  }
  const bool owes = handed_over_ > acknowledged_;
  if ((owes && (handed_over_ - acknowledged_ >= kAcknowledgeMessages ||
                bytes_since_acknowledged_ >= kAcknowledgeBytes ||
                now - unacknowledged_since_ >= options_.acknowledge_delay)) ||
      now - last_written_ >= options_.ping_period) {
    OutgoingMessage out;
    out.header.magic = kMessageMagic;
    out.header.kind = MessageKind::kSign;
    out.header.acknowledged = Acknowledge();
    last_written_ = now;
    return out;
  }
  return std::nullopt;
}

uint64_t LinkState::Acknowledge() {
  acknowledged_ = handed_over_;
  bytes_since_acknowledged_ = 0;
  // What is still being handed over is owed from when it came.
  unacknowledged_since_ = accepted_ > handed_over_ ? last_heard_ : kForever;
  return handed_over_;
}

absl::StatusOr<LinkState::Received> LinkState::Receive(const MessageHeader& header,
                                                       std::shared_ptr<const void> hold,
                                                       std::string_view payload, Nanos now) {
  last_heard_ = now;
  SHEAF_RETURN_IF_ERROR(Acknowledged(header.acknowledged, now));
  Received out;
  if (header.sequence == 0) return out;
  last_frame_ = now;
  if (header.sequence <= accepted_) {
    out.duplicate = true;
    return out;
  }
  if (header.sequence != accepted_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", header.sequence, " follows message ", accepted_));
  }
  std::string& partial = partial_[header.ahead];
  if (!partial.empty() && header.kind != MessageKind::kFrames) {
    return absl::InvalidArgumentError("a payload in pieces is interrupted");
  }
  if (header.kind == MessageKind::kRename) {
    uint64_t packed = 0;
    std::memcpy(&packed, payload.data(), sizeof packed);  // ParseMessageHeader saw to the size.
    out.renamed = ProcessId::Unpack(packed);
    if (!out.renamed.is_raylet()) {
      return absl::InvalidArgumentError(
          absl::StrCat("an end calls itself ", out.renamed.ToString(), ", which is no raylet"));
    }
  } else if (header.more != 0 || !partial.empty()) {
    if (partial.size() + payload.size() > kMaxLinkPayloadBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a payload of more than ", kMaxLinkPayloadBytes, " bytes"));
    }
    partial.append(payload);
    if (header.more != 0) {
      accepted_ = header.sequence;
      OnDelivered();  // In memory is all that a piece can be.
      if (unacknowledged_since_ == kForever) unacknowledged_since_ = now;
      bytes_since_acknowledged_ += payload.size();
      return out;
    }
    auto whole = std::make_shared<const std::string>(std::exchange(partial, std::string()));
    payload = *whole;
    hold = std::move(whole);
  }
  if (header.kind == MessageKind::kFrames) {
    SHEAF_RETURN_IF_ERROR(CheckFrames(payload, header.frame_count));
  }
  accepted_ = header.sequence;
  undelivered_.push_back(header.sequence);
  if (unacknowledged_since_ == kForever) unacknowledged_since_ = now;
  bytes_since_acknowledged_ += header.payload_bytes;
  out.sequence = header.sequence;
  out.frames = header.frame_count;
  out.hold = std::move(hold);
  out.payload = payload;
  return out;
}

void LinkState::HandedOver(uint64_t peer_stream, uint64_t sequence) {
  if (peer_stream != peer_stream_) return;
  const auto found = std::find(undelivered_.begin(), undelivered_.end(), sequence);
  if (found != undelivered_.end()) undelivered_.erase(found);  // Nearly always the first.
  OnDelivered();
}

void LinkState::OnDelivered() {
  handed_over_ = undelivered_.empty() ? accepted_ : undelivered_.front() - 1;
}

}  // namespace sheaf
