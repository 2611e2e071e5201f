// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Remembers what was sent to whom, delivers nothing.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/transport.h"

namespace sheaf {

struct SentFrame {
  Lane lane = Lane::kControl;
  FrameKind kind = FrameKind::kNone;
  std::string body;

  template <class Message>
  Message As() const {
    Message message;
    message.ParseFromString(body);
    return message;
  }
};

class FakeTransport final : public Transport {
 public:
  Channel& To(ProcessId peer) override {
    std::unique_ptr<Recorder>& channel = channels_[peer];
    if (channel == nullptr) channel = std::make_unique<Recorder>();
    return *channel;
  }
  void Forget(ProcessId peer) override {
    channels_.erase(peer);
    forgotten.push_back(peer);
  }

  // All frames to `peer` since the last call.
  std::vector<SentFrame> Take(ProcessId peer) {
    return std::exchange(static_cast<Recorder&>(To(peer)).sent, {});
  }
  // The messages of one kind among them; the others are lost.
  template <class Message>
  std::vector<Message> Take(ProcessId peer, FrameKind kind) {
    std::vector<Message> messages;
    for (const SentFrame& frame : Take(peer)) {
      if (frame.kind == kind) messages.push_back(frame.As<Message>());
    }
    return messages;
  }

  std::vector<ProcessId> forgotten;

 private:
  struct Recorder final : Channel {
    void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      sent.push_back({lane, kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override { return 0; }
    std::vector<SentFrame> sent;
  };
  std::map<ProcessId, std::unique_ptr<Recorder>> channels_;
};

}  // namespace sheaf
