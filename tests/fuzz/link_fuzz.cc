// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A link whose other end, after a right handshake, writes anything: messages are refused or lie
// inside, numbers stay in order, and this end goes on.
#include <cstring>
#include <memory>

#include "rpc/link_fetch.h"
#include "rpc/link_state.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

std::string Message(MessageHeader header, const std::string& payload) {
  header.magic = kMessageMagic;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
}

// An input: the size of each message (2 bytes), then the message.
std::string Sized(const std::string& message) {
  std::string out;
  out.push_back(static_cast<char>(message.size() & 0xff));
  out.push_back(static_cast<char>(message.size() >> 8));
  return out + message;
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::string payload;
  AppendFrame({{1, 2}, {3, 4}, Lane::kWork, FrameKind::kPushTask, "twelve bytes"}, &payload);
  AppendFrame({{1, 2}, {3, 4}, Lane::kControl, FrameKind::kTaskReply, ""}, &payload);
  MessageHeader frames;
  frames.kind = MessageKind::kFrames;
  frames.frame_count = 2;
  frames.sequence = 1;
  MessageHeader first = frames, last = frames, sign, rename;
  first.more = 1;
  first.frame_count = 0;
  last.sequence = 2;
  BlockParts parts(1, Block{"head", {payload.data(), payload.size()}, nullptr});
  MessageHeader part;
  part.kind = MessageKind::kFetchPart;
  const std::string begin = Sized(Message(part, parts.Next().front));
  const BlockParts::Part bytes = parts.Next();
  const std::string block = begin + Sized(Message(part, bytes.front + std::string(bytes.bytes)));
  sign.kind = MessageKind::kSign;
  sign.acknowledged = 3;
  rename.kind = MessageKind::kRename;
  rename.sequence = 2;
  const uint64_t name = RayletOf(7).packed();
  const std::string named(reinterpret_cast<const char*>(&name), sizeof name);
  return {
      Sized(Message(frames, payload)) + Sized(Message(rename, named)),
      Sized(Message(first, payload.substr(0, 32))) + Sized(Message(last, payload.substr(32))),
      Sized(Message(sign, "")) + Sized(Message(frames, payload)) + Sized(Message(frames, payload))};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  LinkState::Options options;
  options.stream = 1;
  LinkState state(options);
  for (int i = 0; i < 4; ++i) {
    state.Queue({kGcs, RayletOf(1), Lane::kWork, FrameKind::kPushTask, "body"});
    state.Flush();
    FUZZ_CHECK(state.NextToWrite(0).has_value() == state.connected());
    if (i == 0) FUZZ_CHECK(state.Connected(2, 0, 0, 0).ok());
  }
  fuzz::Input input(data, size);
  uint64_t last = 0;
  Nanos now = 0;
  BlockAssembly block;
  uint64_t block_bytes = 0;
  while (!input.empty()) {
    const std::string message = input.Bytes(input.Short());
    const auto header = ParseMessageHeader(message, message.size());
    if (!header.ok()) return 0;
    const std::string_view payload = std::string_view(message).substr(sizeof(MessageHeader));
    // In memory of exactly its size, at a multiple of 8.
    std::shared_ptr<char[]> copy(new char[payload.size()]);
    std::memcpy(copy.get(), payload.data(), payload.size());
    const std::string_view view(copy.get(), payload.size());
    const auto received = state.Receive(*header, copy, view, ++now);
    if (!received.ok()) return 0;
    FUZZ_CHECK(state.queued_bytes() <= 4 * 32);
    if (header->kind == MessageKind::kFetchPart) {
      const auto part = BlockAssembly::Parse(view);
      if (!part.ok() || !block.Add(*part, view).ok()) return 0;
      block_bytes += view.size();
      if (!block.complete()) continue;
      const auto whole = block.Take();
      FUZZ_CHECK(!whole.ok() || (*whole)->size() <= block_bytes);
      return 0;
    }
    if (header->kind == MessageKind::kFetch && !ParseFetch(view).ok()) return 0;
    if (received->sequence != 0) {
      FUZZ_CHECK(received->sequence > last);
      last = received->sequence;
      uint32_t frames = 0;
      if (header->kind == MessageKind::kFrames) {
        PayloadBatch(received->hold, received->payload).ForEach([&](const LinkFrame& frame) {
          ++frames;
          FUZZ_CHECK(frame.body.size() <= received->payload.size());
          FUZZ_CHECK(reinterpret_cast<uintptr_t>(frame.body.data()) % 8 == 0);
          volatile char sum = 0;
          for (const char byte : frame.body) sum = static_cast<char>(sum + byte);
        });
        FUZZ_CHECK(frames == received->frames);
      } else {
        FUZZ_CHECK(received->renamed.is_raylet());
      }
      state.HandedOver(2, received->sequence);
    }
    const auto out = state.NextToWrite(now);
    FUZZ_CHECK(!out.has_value() || out->header.acknowledged >= last);
  }
  return 0;
}
