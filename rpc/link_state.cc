// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// An acknowledgement that has nothing to ride on leaves after this much at the latest.
constexpr uint64_t kAcknowledgeMessages = 64;
constexpr uint64_t kAcknowledgeBytes = 1u << 20;

size_t SizeOf(const std::shared_ptr<const std::string>& payload) {
  return payload == nullptr ? 0 : payload->size();
}

}  // namespace

void LinkState::Queue(const LinkFrame& frame) {
  SHEAF_CHECK(frame.body.size() <= kMaxFrameBytes, "a frame is too large for a link");
  if (open_frames_ > 0 && open_.size() + FrameRecordBytes(frame.body.size()) > kBatchBytes) {
    Seal();
  }
  AppendFrame(frame, &open_);
  ++open_frames_;
}

void LinkState::QueueRename(ProcessId name) {
  Seal();
  const uint64_t packed = name.packed();
  Push(
      {MessageKind::kRename, false, 0,
       std::make_shared<const std::string>(reinterpret_cast<const char*>(&packed), sizeof packed)});
}

void LinkState::Seal() {
  if (open_frames_ == 0) return;
  const uint32_t frames = std::exchange(open_frames_, 0);
  flushed_ = false;
  if (open_.size() <= kPieceBytes) {
    const size_t size = open_.size();
    Push({MessageKind::kFrames, false, frames,
          std::make_shared<const std::string>(std::exchange(open_, std::string()))});
    // The next batch will be about as large.
    open_.reserve(std::min(size + size / 4, kBatchBytes + 4096));
    return;
  }
  for (size_t at = 0; at < open_.size(); at += kPieceBytes) {
    const bool more = open_.size() - at > kPieceBytes;
    Push({MessageKind::kFrames, more, more ? 0 : frames,
          std::make_shared<const std::string>(open_.substr(at, kPieceBytes))});
  }
  open_ = std::string();
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
  other.unacknowledged_bytes_ = 0;
}

absl::StatusOr<uint64_t> LinkState::Connected(uint64_t peer_stream, uint64_t known_stream,
                                              uint64_t peer_has, Nanos now) {
  if (peer_stream != peer_stream_) {
    peer_stream_ = peer_stream;
    accepted_ = 0;
    handed_over_ = 0;
    partial_.clear();
  }
  const size_t written = written_;
  if (known_stream == options_.stream) {
    SHEAF_RETURN_IF_ERROR(Acknowledged(peer_has));
  } else {
    // It knows nothing of this stream: what was never acknowledged begins with number 1. A payload
    // of which the former life took the first pieces died with it.
    while (mid_payload_ && !messages_.empty()) DropFirst();
    next_sequence_ = messages_.size() + 1;
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

absl::Status LinkState::Acknowledged(uint64_t sequence) {
  if (sequence >= next_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("message ", sequence, " is acknowledged; only ",
                                                   next_sequence_ - 1, " were sent"));
  }
  while (!messages_.empty() && first_unacknowledged() <= sequence) DropFirst();
  return absl::OkStatus();
}

void LinkState::DropFirst() {
  const size_t size = SizeOf(messages_.front().payload);
  unacknowledged_bytes_ -= size;
  if (written_ > 0) {
    --written_;
    written_bytes_ -= size;
  }
  mid_payload_ = messages_.front().more;
  messages_.pop_front();
}

std::optional<OutgoingMessage> LinkState::NextToWrite(Nanos now) {
  if (!connected_) return std::nullopt;
  if (written_ == messages_.size() && flushed_) Seal();
  if (written_ < messages_.size()) {
    const Message& message = messages_[written_];
    const size_t size = SizeOf(message.payload);
    if (written_bytes_ == 0 || written_bytes_ + size <= options_.max_unacknowledged_bytes) {
      OutgoingMessage out;
      out.header.magic = kMessageMagic;
      out.header.kind = message.kind;
      out.header.more = message.more ? 1 : 0;
      out.header.frame_count = message.frames;
      out.header.payload_bytes = static_cast<uint32_t>(size);
      out.header.sequence = first_unacknowledged() + written_;
      out.header.acknowledged = Acknowledge();
      out.payload = message.payload;
      ++written_;
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
  SHEAF_RETURN_IF_ERROR(Acknowledged(header.acknowledged));
  Received out;
  if (header.sequence == 0) return out;
  if (header.sequence <= accepted_) {
    out.duplicate = true;
    return out;
  }
  if (header.sequence != accepted_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", header.sequence, " follows message ", accepted_));
  }
  if (!partial_.empty() && header.kind != MessageKind::kFrames) {
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
  } else if (header.more != 0 || !partial_.empty()) {
    if (partial_.size() + payload.size() > kMaxLinkPayloadBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a payload of more than ", kMaxLinkPayloadBytes, " bytes"));
    }
    if (partial_.empty()) first_piece_ = header.sequence;
    partial_.append(payload);
    if (header.more != 0) {
      accepted_ = header.sequence;
      // In memory is all that a piece can be.
      if (handed_over_ + 1 == header.sequence) handed_over_ = header.sequence;
      if (unacknowledged_since_ == kForever) unacknowledged_since_ = now;
      bytes_since_acknowledged_ += payload.size();
      return out;
    }
    auto whole = std::make_shared<const std::string>(std::exchange(partial_, std::string()));
    payload = *whole;
    hold = std::move(whole);
  }
  if (header.kind == MessageKind::kFrames) {
    SHEAF_RETURN_IF_ERROR(CheckFrames(payload, header.frame_count));
  }
  accepted_ = header.sequence;
  if (unacknowledged_since_ == kForever) unacknowledged_since_ = now;
  bytes_since_acknowledged_ += payload.size();
  out.sequence = header.sequence;
  out.frames = header.frame_count;
  out.hold = std::move(hold);
  out.payload = payload;
  return out;
}

void LinkState::HandedOver(uint64_t peer_stream, uint64_t sequence) {
  if (peer_stream != peer_stream_) return;
  handed_over_ = std::max(handed_over_, sequence);
  if (!partial_.empty() && sequence + 1 == first_piece_) handed_over_ = accepted_;
}

}  // namespace sheaf
