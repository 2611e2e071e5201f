// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The bytes of a link after its handshake. Little endian; everything begins at a multiple of 8.
//   message  | MessageHeader | payload                                          |
//   payload  | FrameHeader | body, zeros to a multiple of 8 | FrameHeader | ... |
// A payload over kPieceBytes travels in several messages, in order, all but the last with `more`:
// put together they are one payload. What comes from a peer is checked here before anybody looks
// at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rpc/links.h"

namespace sheaf {

inline constexpr size_t kBatchBytes = 64 * 1024;      // A batch that reaches it takes no more.
inline constexpr size_t kPieceBytes = 128 * 1024;     // Of payload in one message: 1 s at 1 Mbit/s.
inline constexpr size_t kMaxFrameBytes = 128u << 20;  // Of one body.
inline constexpr size_t kMaxLinkPayloadBytes = kMaxFrameBytes + kBatchBytes;
inline constexpr size_t kMaxMessageBytes = kPieceBytes + 4096;  // What a stream accepts.

enum class MessageKind : uint8_t {
  kSign = 1,       // Header alone: an acknowledgement, and a sign of life. Not in the sequence.
  kFrames = 2,     // In the sequence.
  kRename = 3,     // In the sequence: from here on the sender is the end named by the payload.
  kFetch = 4,      // Not in the sequence: asks the end that cannot be dialled for a block.
  kFetchPart = 5,  // Not in the sequence: a piece of the answer.
};

struct MessageHeader {
  uint32_t magic = 0;
  MessageKind kind = MessageKind::kSign;
  uint8_t more = 0;   // 1: the payload goes on in the next message of the sequence, of those
  uint8_t ahead = 0;  // that have the same `ahead`. 1: it may lie between the pieces of another.
  uint8_t unused = 0;
  uint32_t frame_count = 0;    // In the whole payload; counts in its last message only.
  uint32_t payload_bytes = 0;  // That follow.
  uint64_t sequence = 0;       // From 1; 0 where the kind is not in the sequence.
  uint64_t acknowledged = 0;   // The sender has all messages up to here.
};
static_assert(sizeof(MessageHeader) == 32);

struct FrameHeader {
  uint64_t from = 0, to = 0;  // Packed ProcessIds.
  uint32_t body_bytes = 0;
  uint16_t kind = 0;
  uint8_t lane = 0;
  uint8_t unused = 0;
};
static_assert(sizeof(FrameHeader) == 24);

inline constexpr uint32_t kMessageMagic = 0x4c46'4853;  // "SHFL".

constexpr size_t PaddedBytes(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
constexpr size_t FrameRecordBytes(size_t body_bytes) {
  return sizeof(FrameHeader) + PaddedBytes(body_bytes);
}

// Appends one frame to a payload.
void AppendFrame(const LinkFrame& frame, std::string* payload);

// kInvalidArgument: not a header of this version, or one that does not fit `message_bytes`, the
// size of header and payload.
absl::StatusOr<MessageHeader> ParseMessageHeader(std::string_view header, size_t message_bytes);

// kInvalidArgument: `payload` is not exactly `frame_count` frames.
absl::Status CheckFrames(std::string_view payload, uint32_t frame_count);

// The frames of a payload that was checked and lies at a multiple of 8; `hold` owns its bytes.
class PayloadBatch final : public LinkBatch {
 public:
  PayloadBatch(std::shared_ptr<const void> hold, std::string_view payload)
      : hold_(std::move(hold)), payload_(payload) {}
  void ForEach(const std::function<void(const LinkFrame&)>& handle) const override;

 private:
  const std::shared_ptr<const void> hold_;
  const std::string_view payload_;
};

}  // namespace sheaf
