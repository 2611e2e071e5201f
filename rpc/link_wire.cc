// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_wire.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace sheaf {

void AppendFrame(const LinkFrame& frame, std::string* payload) {
  FrameHeader header;
  header.from = frame.from.packed();
  header.to = frame.to.packed();
  header.body_bytes = static_cast<uint32_t>(frame.body.size());
  header.kind = static_cast<uint16_t>(frame.kind);
  header.lane = static_cast<uint8_t>(frame.lane);
  payload->append(reinterpret_cast<const char*>(&header), sizeof header);
  payload->append(frame.body);
  payload->append(PaddedBytes(frame.body.size()) - frame.body.size(), '\0');
}

absl::StatusOr<MessageHeader> ParseMessageHeader(std::string_view header, size_t message_bytes) {
  MessageHeader out;
  if (header.size() < sizeof out || message_bytes < sizeof out) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", message_bytes, " bytes has no header"));
  }
  std::memcpy(&out, header.data(), sizeof out);
  if (out.magic != kMessageMagic) {
    return absl::InvalidArgumentError(absl::StrCat("a message begins with ", absl::Hex(out.magic)));
  }
  if (out.payload_bytes != message_bytes - sizeof out) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", message_bytes, " bytes says that its payload has ", out.payload_bytes));
  }
  const bool in_sequence = out.kind == MessageKind::kFrames || out.kind == MessageKind::kRename;
  const bool known = in_sequence || out.kind == MessageKind::kSign ||
                     out.kind == MessageKind::kFetch || out.kind == MessageKind::kFetchPart;
  if (!known || in_sequence != (out.sequence != 0) || out.more > 1 || out.ahead > 1 ||
      (out.more + out.ahead > 0 && out.kind != MessageKind::kFrames) ||
      (out.kind == MessageKind::kSign && out.payload_bytes != 0) ||
      (out.kind == MessageKind::kRename && out.payload_bytes != sizeof(uint64_t))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of kind ", static_cast<int>(out.kind), ", sequence ", out.sequence,
                     ", more ", static_cast<int>(out.more), " and ", out.payload_bytes, " bytes"));
  }
  return out;
}

absl::Status CheckFrames(std::string_view payload, uint32_t frame_count) {
  uint32_t frames = 0;
  size_t at = 0;
  while (at < payload.size()) {
    FrameHeader header;
    if (payload.size() - at < sizeof header) {
      return absl::InvalidArgumentError(absl::StrCat("half a frame at byte ", at));
    }
    std::memcpy(&header, payload.data() + at, sizeof header);
    if (header.body_bytes > kMaxFrameBytes ||
        FrameRecordBytes(header.body_bytes) > payload.size() - at || header.lane > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a frame of ", header.body_bytes, " bytes in lane ",
                       static_cast<int>(header.lane), " at byte ", at, " of ", payload.size()));
    }
    at += FrameRecordBytes(header.body_bytes);
    ++frames;
  }
  if (frames != frame_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(frames, " frames in a message that says ", frame_count));
  }
  return absl::OkStatus();
}

void PayloadBatch::ForEach(const std::function<void(const LinkFrame&)>& handle) const {
  for (size_t at = 0; at < payload_.size();) {
    const auto* header = reinterpret_cast<const FrameHeader*>(payload_.data() + at);
    handle({ProcessId::Unpack(header->from), ProcessId::Unpack(header->to),
            static_cast<Lane>(header->lane), static_cast<FrameKind>(header->kind),
            payload_.substr(at + sizeof(FrameHeader), header->body_bytes)});
    at += FrameRecordBytes(header->body_bytes);
  }
}

}  // namespace sheaf
