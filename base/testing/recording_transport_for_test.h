// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: remembers what was sent to whom, and delivers nothing. Not thread-safe.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/transport.h"

namespace sheaf {

struct SentFrame {
  ProcessId to;
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

class RecordingTransport final : public Transport {
 public:
  Channel& To(ProcessId peer) override {
    return channels_.try_emplace(peer, *this, peer).first->second;
  }
  void Forget(ProcessId peer) override { forgotten.push_back(peer); }

  // The oldest frame of `kind` that was not taken yet; there must be one.
  SentFrame Take(FrameKind kind) {
    for (auto frame = sent.begin(); frame != sent.end(); ++frame) {
      if (frame->kind != kind) continue;
      SentFrame taken = std::move(*frame);
      sent.erase(frame);
      return taken;
    }
    FAIL("no frame of kind " << static_cast<int>(kind) << " was sent");
    return {};
  }
  // All frames to `peer` that were not taken yet, the oldest first.
  std::vector<SentFrame> Take(ProcessId peer) {
    std::vector<SentFrame> taken;
    std::erase_if(sent, [&](SentFrame& frame) {
      if (frame.to != peer) return false;
      taken.push_back(std::move(frame));
      return true;
    });
    return taken;
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
  size_t Count(FrameKind kind) const {
    size_t count = 0;
    for (const SentFrame& frame : sent) count += frame.kind == kind;
    return count;
  }

  std::deque<SentFrame> sent;          // What was not taken, the oldest first.
  std::vector<ProcessId> forgotten;    // In this order.
  std::map<ProcessId, size_t> queued;  // What channels say of their queued bytes; 0 without one.

 private:
  class Recorder final : public Channel {
   public:
    Recorder(RecordingTransport& transport, ProcessId peer) : transport_(transport), peer_(peer) {}
    void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      transport_.sent.push_back({peer_, lane, kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override {
      const auto found = transport_.queued.find(peer_);
      return found == transport_.queued.end() ? 0 : found->second;
    }

   private:
    RecordingTransport& transport_;
    const ProcessId peer_;
  };
  std::map<ProcessId, Recorder> channels_;  // A map: channels stay where they are.
};

}  // namespace sheaf
