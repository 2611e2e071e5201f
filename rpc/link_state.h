// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One end of a link without its connections: frames become messages with numbers, messages stay
// until the other end has them, and what arrives twice is dropped. No thread, clock, lock or
// socket: bytes and times go in, messages come out, so tests and tests/sim can lose any of it.
//
// A stream number, random, names one life of one end of a link. Two ends that meet again tell each
// other which stream they know of the other, and how far (Introduce): either the stream is the one
// they know, and what is missing is sent again, or the other process was restarted, and counting
// begins anew on both sides with all that was never acknowledged.
//
// A message gets its number when it is first written, so what is queued ahead goes before all that
// was not. What is written and not acknowledged cannot be overtaken any more: it fills the buffers
// of sockets. So not more of it is allowed than is acknowledged within about half a second.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rpc/link_wire.h"

namespace sheaf {

// A message to be written: the header, then the payload, which may be none.
struct OutgoingMessage {
  MessageHeader header;
  std::shared_ptr<const std::string> payload;
};

class LinkState {
 public:
  struct Options {
    uint64_t stream = 0;  // Of this end; random, not 0.
    uint64_t max_unacknowledged_bytes = uint64_t{64} << 20;
    Nanos ping_period = kSecond;
    Nanos acknowledge_delay = 20 * kMillisecond;  // For acknowledgements with nothing to ride on.
  };
  explicit LinkState(const Options& options);

  // --- What is to be sent ---
  // Puts `frame` behind all others. Body at most kMaxFrameBytes.
  void Queue(const LinkFrame& frame);
  // Puts it before all that was not written yet, but behind what was put there before. May leave at
  // once.
  void QueueAhead(const LinkFrame& frame);
  // From here on this end is `name`.
  void QueueRename(ProcessId name);
  // What was queued so far may leave.
  void Flush() { flushed_ = flushed_ || open_frames_ > 0; }
  // Moves what `other`, which never met its peer, has queued behind what is queued here.
  void Take(LinkState&& other);

  // --- Meeting ---
  uint64_t stream() const { return options_.stream; }
  uint64_t peer_stream() const { return peer_stream_; }  // 0: never met.
  // Messages of `peer_stream` that this end has; 0 if that is another stream than the known one.
  uint64_t ReceivedOf(uint64_t peer_stream) const {
    return peer_stream == peer_stream_ ? accepted_ : 0;
  }
  // A connection stands, over which the other end introduced itself as `peer_stream` and says that
  // it has `peer_has` messages of the stream `known_stream`. Returns the number of messages that
  // will be written a second time. kInvalidArgument: it has more than was ever sent.
  absl::StatusOr<uint64_t> Connected(uint64_t peer_stream, uint64_t known_stream, uint64_t peer_has,
                                     Nanos now);
  void Disconnected() { connected_ = false; }
  bool connected() const { return connected_; }

  // The next message to write on the connection, if any; the caller writes them in this order.
  // Without frames to send: an acknowledgement that is due, or a ping.
  std::optional<OutgoingMessage> NextToWrite(Nanos now);
  // A message outside the sequence carries this.
  uint64_t Acknowledge();

  // --- What arrives ---
  struct Received {
    bool duplicate = false;
    uint64_t sequence = 0;  // Of a message to be handed over; 0: nothing to hand over.
    uint32_t frames = 0;
    ProcessId renamed;                 // With kRename.
    std::shared_ptr<const void> hold;  // Of `payload`, whole and checked.
    std::string_view payload;
  };
  // A message that ParseMessageHeader accepted. `hold` owns the bytes of `payload`, which lies at a
  // multiple of 8. kInvalidArgument, kResourceExhausted: the connection is to be closed.
  absl::StatusOr<Received> Receive(const MessageHeader& header, std::shared_ptr<const void> hold,
                                   std::string_view payload, Nanos now);
  // The message `sequence` of `peer_stream` was handed to its receiver: it may be acknowledged.
  void HandedOver(uint64_t peer_stream, uint64_t sequence);
  // Something arrived that is no message of the sequence.
  void Heard(Nanos now) { last_heard_ = now; }
  Nanos last_heard() const { return last_heard_; }
  Nanos last_frame() const { return last_frame_; }  // Or a piece of one; 0: none came.
  uint64_t window() const { return window_; }       // So many written bytes may be unacknowledged.

  // Accepted and not acknowledged.
  size_t queued_bytes() const { return unacknowledged_bytes_ + open_.size(); }
  bool HasSomethingToSend() const { return !messages_.empty() || open_frames_ > 0; }

 private:
  struct Message {
    MessageKind kind;
    bool more;
    bool ahead;
    uint32_t frames;
    std::shared_ptr<const std::string> payload;
    Nanos written_at = 0;  // Last.
  };
  // A payload as messages, in order.
  static std::vector<Message> Cut(std::string payload, uint32_t frames, bool ahead);
  void Seal();
  void Push(Message message);
  void DropFirst();
  void DropMidPayload();
  void Adapt(Nanos delay, size_t bytes);
  uint64_t first_unacknowledged() const { return next_sequence_ - messages_.size(); }
  absl::Status Acknowledged(uint64_t sequence, Nanos now);
  void OnDelivered();

  const Options options_;

  // The sequence of this end: messages_ hold next_sequence_ - messages_.size() and on.
  std::deque<Message> messages_;
  uint64_t next_sequence_ = 1;
  size_t written_ = 0;        // Of messages_, on this connection.
  size_t written_bytes_ = 0;  // Payloads of those.
  size_t numbered_ = 0;       // Of messages_, ever written: these keep their numbers.
  size_t ahead_ = 0;          // Of those behind them, the first that were queued ahead.
  size_t unacknowledged_bytes_ = 0;
  uint64_t window_ = 0;
  Nanos narrowed_at_ = 0;
  // Of what was queued, and ahead: the first message goes on with a payload whose begin is gone.
  bool mid_payload_[2] = {false, false};
  std::string open_;  // The batch that still grows.
  uint32_t open_frames_ = 0;
  bool flushed_ = false;  // `open_` may leave.

  // The sequence of the other end.
  uint64_t peer_stream_ = 0;
  uint64_t accepted_ = 0;  // Arrived, in order.
  uint64_t handed_over_ = 0;
  uint64_t acknowledged_ = 0;  // Told to the other end, on this connection.
  uint64_t bytes_since_acknowledged_ = 0;
  Nanos unacknowledged_since_ = kForever;
  std::string partial_[2];            // The pieces of a payload so far, and of one sent ahead.
  std::deque<uint64_t> undelivered_;  // Messages with payloads that are being handed over.

  bool connected_ = false;
  Nanos last_heard_ = 0;
  Nanos last_frame_ = 0;
  Nanos last_written_ = 0;
};

}  // namespace sheaf
