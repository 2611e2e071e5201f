// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How one process speaks to another. Over rings on real nodes (shm/mailbox.h), over a virtual
// network in tests/sim. Owner, raylet and GCS logic see nothing else of the world between
// processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "base/ids.h"

namespace sheaf {

// To one peer. Frames of one lane arrive in order, or the peer is dead.
class Channel {
 public:
  virtual ~Channel() = default;
  // Hands over one frame whose body is `head` followed by `tail`. Never blocks and never drops
  // while the peer lives: what does not fit is queued in this process. To a dead peer it goes
  // nowhere.
  virtual void Send(Lane lane, FrameKind kind, std::string_view head,
                    std::string_view tail = {}) = 0;
  // Bytes accepted but not yet visible to the peer: the measure for back-pressure.
  virtual size_t queued_bytes() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // The channel to `peer`, making contact on first use. Stays valid until Forget(peer).
  virtual Channel& To(ProcessId peer) = 0;
  // `peer` is dead: its channel and all that is queued for it go.
  virtual void Forget(ProcessId peer) = 0;
};

// Sends a protobuf message (anything with SerializeAsString).
template <class Message>
void SendMessage(Channel& channel, FrameKind kind, const Message& message,
                 Lane lane = Lane::kControl) {
  channel.Send(lane, kind, message.SerializeAsString());
}

}  // namespace sheaf
