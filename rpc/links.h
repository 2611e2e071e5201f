// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The connections of this daemon to the other daemons of the cluster: frames in order, and blocks
// of bytes on request. One Links per daemon process; it stands for one raylet, for the GCS, or (in
// `sheaf node`) for both, over one listening port.
//
// A link joins two ends, each named by a ProcessId: RayletOf(n), kGcs, or a guest {0, k}: a raylet
// that has no number yet, as the accepting end calls it. Frames of a link arrive once and in the
// order of Send, or the link is lost: what was not acknowledged is sent again after a reconnect, by
// sequence number, and the receiver drops what it has (numbers are per pair of incarnations: each
// Links draws a random one). Acknowledged means handed to `on_frames`. Frames for one peer that are
// sent before Flush travel as one message.
//
// A link is dialled by whichever side first sends and knows an address; of two at once the one
// dialled by the lower end stays. An accepted link serves both directions, so an end that cannot be
// dialled (behind NAT) is reached over the link that it dialled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "rpc/gcs_term.h"
#include "rpc/security/credentials.h"

namespace sheaf {

// One frame on its way between two nodes. `body` is a view.
struct LinkFrame {
  ProcessId from;
  ProcessId to;
  Lane lane = Lane::kControl;
  FrameKind kind = FrameKind::kNone;
  std::string_view body;
};

// The frames of one message, in order. Owns its bytes.
class LinkBatch {
 public:
  virtual ~LinkBatch() = default;
  // Calls `handle` for each frame; bodies are 8-byte aligned and valid until the batch is
  // destroyed. Everything was checked: no frame reaches outside of the message.
  virtual void ForEach(const std::function<void(const LinkFrame&)>& handle) const = 0;
};

// Bytes to be sent as the answer to a Fetch. `hold` keeps `bytes` alive until they have left.
struct Block {
  std::string head;
  std::span<const char> bytes;
  std::shared_ptr<const void> hold;
};
// The same as it arrives: its head is here, its bytes may still be on their way. They are to be had
// once, and not after FetchDone has returned but by Keep. One thread at a time.
class ReceivedBlock {
 public:
  virtual ~ReceivedBlock() = default;
  virtual const std::string& head() const = 0;
  virtual uint64_t size() const = 0;  // Of the bytes.
  // `to` has size() bytes. Waits for those that have not come: for the timeout of the fetch, and
  // then for as long as 64 KiB of them come in 5 s. kUnavailable,
  // kDeadlineExceeded: not all came. kDataLoss: what came, which is in `to` now, has another
  // checksum than what was sent.
  virtual absl::Status CopyTo(std::span<char> to) = 0;
  // Brings the bytes into memory of the block's own, so that CopyTo waits for nothing, at any time.
  // Errors as above.
  virtual absl::Status Keep() { return absl::OkStatus(); }
  // The next are for any thread, while CopyTo or Keep runs or before it does. It waits for no more
  // bytes.
  virtual void Interrupt() {}
  // So many bytes have come.
  virtual uint64_t arrived() const { return size(); }
};

struct LinksOptions {
  std::string listen_address;     // "host:port"; port 0: a free one. Empty: dial only.
  std::string advertise_address;  // What others dial; empty: as listened.
  std::string version;            // Of this build; both ends must agree.
  Credentials credentials;
  Nanos ping_period = kSecond;  // On an idle link.
  // Without a sign of life: the connection is given up, and redialled.
  Nanos silence_limit = 5 * kSecond;
  Nanos idle_limit = 10 * kSecond;  // A connection without a link or a fetch is closed after this.
  uint64_t max_unacknowledged_bytes = uint64_t{64}
                                      << 20;  // Of one link; more waits unsent, see queued_bytes.

  // All of these are called on threads of the links and must not block.
  // Frames for an end that this process hosts. `peer` names the other end of the link.
  std::function<void(ProcessId peer, std::unique_ptr<LinkBatch> batch)> on_frames;
  // A link came up, or down (and is redialled), or is down for another reason than was said last.
  // `reason`: kUnavailable, kUnauthenticated (token or certificate), kFailedPrecondition (another
  // version), kPermissionDenied (the peer forgot this end), kCancelled (a guest has its number now;
  // the link stays, under the new name), kAborted (the term of the GCS here is over: another one is
  // followed).
  std::function<void(ProcessId peer, bool up, absl::Status reason)> on_link;
  // Somebody fetches a block. Answer once, from any thread.
  using Respond = std::function<void(absl::StatusOr<Block>)>;
  std::function<void(ProcessId peer, std::string request, Respond respond)> on_fetch;
};

class Links {
 public:
  // Listens. kInvalidArgument: an address that cannot be parsed. kFailedPrecondition: a
  // non-loopback address with neither token nor certificates. kAlreadyExists: the port is taken.
  static absl::StatusOr<std::unique_ptr<Links>> Start(LinksOptions options);
  virtual ~Links() = default;

  // "host:port" that others dial; empty when this process only dials.
  virtual std::string address() const = 0;

  // `end` (RayletOf(n) or kGcs) is this process. A raylet that registers speaks as a guest until it
  // knows its number; links that it dialled as a guest are told the new name, and stay.
  virtual void AddSelf(ProcessId end) = 0;
  // Before AddSelf(kGcs). Others learn the term of the GCS that they dial.
  virtual void SetTerm(const GcsTerm& term) = 0;
  // Where `peer` can be dialled; a repeat changes nothing. Empty: it is dialled no more, and let in
  // when it dials; a connection that stands, stays.
  virtual void SetAddress(ProcessId peer, const std::string& address) = 0;
  // `peer` is dead (or refused): what is queued for it goes, its connections are closed and not
  // accepted again.
  virtual void Forget(ProcessId peer) = 0;
  // Connections that are made from now on use the certificates of `next`; those that stand stay.
  // Its token and name of peers are not looked at. kFailedPrecondition: these links have none.
  // kInvalidArgument: ones that are none, and those from before stay in use.
  virtual absl::Status SetCertificates(const Credentials& next) = 0;

  // Queues one frame on the link between `self` (one of the ends added, or {0, 0} with no end
  // added: as a guest) and `peer`. Any thread; frames of one thread keep their order. Never blocks
  // and never drops while the peer lives. Without an address for a peer it waits for one.
  virtual void Send(ProcessId self, ProcessId peer, const LinkFrame& frame) = 0;
  // The same, and it leaves at once, before all frames of Send that wait. Those sent ahead keep
  // their order among themselves. For the few that decide who lives: what is bulk here travels in
  // pieces, and no more of them is on its way than leaves within about half a second.
  virtual void SendAhead(ProcessId self, ProcessId peer, const LinkFrame& frame) = 0;
  // Lets what was queued leave.
  virtual void Flush() = 0;
  // Accepted and not acknowledged, on the link to `peer`: the measure for back-pressure.
  virtual size_t queued_bytes(ProcessId peer) const = 0;
  // When a frame of `peer`, or a piece of one, came last (MonotonicNow); 0: never. Signs that the
  // links alone are alive do not count.
  virtual Nanos last_frame(ProcessId peer) const = 0;
  // When a block of `peer` came last, or 64 KiB of one (MonotonicNow); 0: never. Who waits for another
  // block of that peer is in line behind it.
  virtual Nanos last_block(ProcessId peer) const = 0;
  // Of the GCS here, or else of the one that was dialled last.
  virtual GcsTerm followed_term() const = 0;

  // Asks `peer` for a block (over the link itself where it has no address); `done` is called once,
  // on a thread of the links. kUnavailable; kDeadlineExceeded; or what on_fetch answered.
  using FetchDone = std::function<void(absl::StatusOr<std::unique_ptr<ReceivedBlock>>)>;
  virtual void Fetch(ProcessId self, ProcessId peer, std::string request, Nanos timeout,
                     FetchDone done) = 0;

  // Closes everything; no callback is running or will be called when it returns. Idempotent.
  virtual void Stop() = 0;

  struct Figures {
    uint64_t messages_sent = 0, frames_sent = 0, bytes_sent = 0;
    uint64_t messages_received = 0, frames_received = 0, bytes_received = 0;
    uint64_t resent_messages = 0, duplicates_dropped = 0, reconnects = 0;
    uint64_t refused_handshakes = 0, refused_connections = 0;
    uint64_t fetched_bytes = 0, served_bytes = 0;
    uint64_t queued_bytes = 0;        // Now, over all links.
    int64_t certificates_expire = 0;  // Those in use. Seconds since 1970; 0: there are none.
  };
  virtual Figures figures() const = 0;
};

}  // namespace sheaf
