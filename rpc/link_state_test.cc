// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The sequence of a link: every frame once and in order, over connections that are cut anywhere.
#include "rpc/link_state.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <vector>

#include "base/random.h"
#include "rpc/aligned_copy_for_test.h"

namespace sheaf {
namespace link_state_test {

constexpr ProcessId kA{1, 0}, kB{2, 0};

LinkState::Options WithStream(uint64_t stream) {
  LinkState::Options options;
  options.stream = stream;
  return options;
}

// An end whose frames are numbers. What it wrote lies in `wire` until the other end reads it.
struct End {
  explicit End(const LinkState::Options& options) : state(options) {}

  void Send(uint64_t count, size_t body_bytes = 8) {
    std::string body(std::max<size_t>(body_bytes, 8), 'x');
    for (; count > 0; --count) {
      std::memcpy(body.data(), &next_sent, sizeof next_sent);
      ++next_sent;
      state.Queue({kA, kB, Lane::kWork, FrameKind::kPushTask, body});
    }
  }
  void SendAhead(uint64_t number, size_t body_bytes = 8) {
    std::string body(body_bytes, 'x');
    std::memcpy(body.data(), &number, sizeof number);
    state.QueueAhead({kA, kB, Lane::kControl, FrameKind::kGcsRequest, body});
  }
  // Writes up to `count` messages.
  size_t Write(Nanos now, size_t count = SIZE_MAX) {
    size_t written = 0;
    for (; written < count; ++written) {
      std::optional<OutgoingMessage> message = state.NextToWrite(now);
      if (!message.has_value()) break;
      std::string bytes(reinterpret_cast<const char*>(&message->header), sizeof message->header);
      if (message->payload != nullptr) bytes.append(*message->payload);
      wire.push_back(std::move(bytes));
    }
    return written;
  }
  // Reads one message of `other`. `hand_over`: at once, or later.
  absl::Status Read(End& other, Nanos now, bool hand_over = true) {
    auto bytes = AlignedCopy(other.wire.front());
    other.wire.pop_front();
    const auto header = ParseMessageHeader(bytes.view, bytes.view.size());
    if (!header.ok()) return header.status();
    auto got = state.Receive(*header, bytes.hold, bytes.view.substr(sizeof(MessageHeader)), now);
    if (!got.ok()) return got.status();
    duplicates += got->duplicate ? 1 : 0;
    if (got->sequence == 0) return absl::OkStatus();
    if (header->kind == MessageKind::kRename) {
      renamed = got->renamed;
      state.HandedOver(state.peer_stream(), got->sequence);
      return absl::OkStatus();
    }
    PayloadBatch(got->hold, got->payload).ForEach([&](const LinkFrame& frame) {
      uint64_t number = 0;
      std::memcpy(&number, frame.body.data(), sizeof number);
      arrived.push_back(number);
    });
    waiting.emplace_back(state.peer_stream(), got->sequence);
    if (hand_over) HandOver();
    return absl::OkStatus();
  }
  void HandOver() {
    for (auto [stream, sequence] : waiting) state.HandedOver(stream, sequence);
    waiting.clear();
  }

  LinkState state;
  std::deque<std::string> wire;
  std::vector<uint64_t> arrived;
  std::vector<std::pair<uint64_t, uint64_t>> waiting;
  uint64_t next_sent = 0, duplicates = 0;
  ProcessId renamed;
};

// As a handshake does it.
void Connect(End& a, End& b, Nanos now) {
  a.wire.clear();
  b.wire.clear();
  const uint64_t known_a = b.state.peer_stream(), known_b = a.state.peer_stream();
  const uint64_t has_a = b.state.ReceivedOf(known_a), has_b = a.state.ReceivedOf(known_b);
  REQUIRE(a.state.Connected(b.state.stream(), known_a, has_a, now).ok());
  REQUIRE(b.state.Connected(a.state.stream(), known_b, has_b, now).ok());
}

void Cut(End& a, End& b) {
  a.state.Disconnected();
  b.state.Disconnected();
}

bool InOrder(const std::vector<uint64_t>& numbers, uint64_t count) {
  if (numbers.size() != count) return false;
  for (uint64_t i = 0; i < count; ++i) {
    if (numbers[i] != i) return false;
  }
  return true;
}

TEST_CASE("frames before a Flush travel as one message, and not before it") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(64, 128);
  CHECK(a.Write(0) == 0);
  CHECK(a.state.queued_bytes() == 64 * (24 + 128));
  a.state.Flush();
  CHECK(a.Write(0) == 1);
  REQUIRE(b.Read(a, 0).ok());
  CHECK(InOrder(b.arrived, 64));
  SECTION("and are kept until they are acknowledged") {
    CHECK(a.state.queued_bytes() == 64 * (24 + 128));
    CHECK(b.Write(0) == 0);  // Not at once: perhaps there is something to ride on.
    CHECK(b.Write(20 * kMillisecond) == 1);
    REQUIRE(a.Read(b, 0).ok());
    CHECK(a.state.queued_bytes() == 0);
    CHECK_FALSE(a.state.HasSomethingToSend());
  }
  SECTION("an acknowledgement rides on the next message back") {
    b.Send(1);
    b.state.Flush();
    CHECK(b.Write(0) == 1);
    REQUIRE(a.Read(b, 0).ok());
    CHECK(a.state.queued_bytes() == 0);
    CHECK(b.Write(20 * kMillisecond) == 0);
  }
  SECTION("what was not handed over is not acknowledged") {
    a.Send(1);
    a.state.Flush();
    a.Write(0);
    REQUIRE(b.Read(a, 0, /*hand_over=*/false).ok());
    CHECK(b.Write(20 * kMillisecond) == 1);
    REQUIRE(a.Read(b, 0).ok());
    CHECK(a.state.queued_bytes() == 32);
    b.HandOver();
    CHECK(b.Write(40 * kMillisecond) == 1);
    REQUIRE(a.Read(b, 0).ok());
    CHECK(a.state.queued_bytes() == 0);
  }
}

TEST_CASE("an idle link pings") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  CHECK(a.Write(kSecond - 1) == 0);
  CHECK(a.Write(kSecond) == 1);
  CHECK(a.Write(kSecond) == 0);
  REQUIRE(b.Read(a, 7 * kSecond).ok());
  CHECK(b.state.last_heard() == 7 * kSecond);
}

TEST_CASE(
    "what was lost with a connection is written again, and what arrived is not counted twice") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  for (int i = 0; i < 10; ++i) {
    a.Send(1);
    a.state.Flush();
    a.Write(0);
  }
  for (int i = 0; i < 4; ++i) REQUIRE(b.Read(a, 0).ok());
  Cut(a, b);
  CHECK(a.Write(0) == 0);
  Connect(a, b, 0);
  CHECK(a.Write(0) == 6);
  const std::deque<std::string> copy = a.wire;
  while (!a.wire.empty()) REQUIRE(b.Read(a, 0).ok());
  CHECK(InOrder(b.arrived, 10));
  a.wire = copy;  // The same once more.
  while (!a.wire.empty()) REQUIRE(b.Read(a, 0).ok());
  CHECK(InOrder(b.arrived, 10));
  CHECK(b.duplicates == 6);
}

TEST_CASE("only so much is on its way; the rest waits for acknowledgements") {
  LinkState::Options options = WithStream(1);
  options.max_unacknowledged_bytes = 300;
  End a(options), b(WithStream(2));
  Connect(a, b, 0);
  for (int i = 0; i < 10; ++i) {
    a.Send(1, 100);
    a.state.Flush();
    a.Write(0);
  }
  CHECK(a.wire.size() == 2);  // 128 bytes each.
  Nanos now = 0;
  while (b.arrived.size() < 10) {
    while (!a.wire.empty()) REQUIRE(b.Read(a, now).ok());
    now += kSecond;
    b.Write(now);
    while (!b.wire.empty()) REQUIRE(a.Read(b, now).ok());
    a.state.Flush();
    REQUIRE(a.Write(now) + b.arrived.size() > 0);
  }
  CHECK(InOrder(b.arrived, 10));
}

TEST_CASE("a frame larger than a message travels in pieces") {
  LinkState::Options options = WithStream(1);
  options.max_unacknowledged_bytes = 300'000;  // Less than the frame.
  End a(options), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1);
  a.state.Flush();
  a.Write(0);
  REQUIRE(b.Read(a, 0, /*hand_over=*/false).ok());  // Another thread is busy with it.
  a.Send(1, 1'000'000);
  a.Send(1);
  a.state.Flush();
  Nanos now = 0;
  for (int round = 0; round < 100 && b.arrived.size() < 3; ++round) {
    a.Write(now);
    for (const std::string& message : a.wire) CHECK(message.size() <= kMaxMessageBytes);
    if (round % 3 == 1) {
      Cut(a, b);
      Connect(a, b, now);
    }
    while (!a.wire.empty()) REQUIRE(b.Read(a, now, round > 5).ok());
    if (round == 5) b.HandOver();
    now += kSecond;
    b.Write(now);
    while (!b.wire.empty()) REQUIRE(a.Read(b, now).ok());
  }
  CHECK(InOrder(b.arrived, 3));
}

constexpr uint64_t kUrgent = 1000;  // Numbers of frames that are sent ahead.

TEST_CASE("what is sent ahead overtakes bulk in the middle of its pieces, each once and in order") {
  // The latter in pieces as well.
  const size_t urgent_bytes = GENERATE(size_t{8}, size_t{300'000});
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1, 4'000'000);
  a.Send(1);
  a.state.Flush();
  CHECK(a.Write(0) == 4);  // Pieces of the first, as many as the first window holds.
  a.SendAhead(kUrgent, urgent_bytes);
  a.SendAhead(kUrgent + 1, urgent_bytes);
  const bool cut = GENERATE(false, true);
  if (cut) {
    Cut(a, b);
    Connect(a, b, 0);
  }
  Nanos now = 0;
  for (int round = 0; round < 100 && b.arrived.size() < 4; ++round) {
    a.Write(now);
    while (!a.wire.empty()) REQUIRE(b.Read(a, now).ok());
    now += 20 * kMillisecond;
    b.Write(now);
    while (!b.wire.empty()) REQUIRE(a.Read(b, now).ok());
  }
  CHECK(b.arrived == std::vector<uint64_t>{kUrgent, kUrgent + 1, 0, 1});
  CHECK(a.state.queued_bytes() == 0);
}

TEST_CASE("a peer that was restarted gets what was sent ahead, though bulk around it is torn") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1, 1'000'000);
  a.Send(1);
  a.state.Flush();
  CHECK(a.Write(0, 2) == 2);
  a.SendAhead(kUrgent);
  REQUIRE(b.Read(a, 0).ok());
  b.Write(20 * kMillisecond);
  REQUIRE(a.Read(b, 20 * kMillisecond).ok());  // The first piece is acknowledged, and lost with b.
  Cut(a, b);
  End fresh(WithStream(3));
  Connect(a, fresh, kSecond);
  a.Write(kSecond);
  while (!a.wire.empty()) REQUIRE(fresh.Read(a, kSecond).ok());
  CHECK(fresh.arrived == std::vector<uint64_t>{kUrgent, 1});
}

// Bytes leave at so many a second; 10 Mbit/s and 1 Gbit/s.
TEST_CASE("no more bulk is on its way than leaves within half a second or so") {
  const int64_t bytes_per_second = GENERATE(1'250'000, 125'000'000);
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  constexpr size_t kBulk = 32 << 20;
  a.Send(1, kBulk);
  a.state.Flush();
  struct OnItsWay {
    Nanos at;
    size_t bytes;
  };
  std::deque<OnItsWay> pipe;  // One for each message of a.wire.
  Nanos free_at = 0, worst = 0, now = 0, ended = 0;
  size_t most = 0, in_pipe = 0;
  for (; ended == 0 && now < 60 * kSecond; now += kMillisecond) {
    const size_t before = a.wire.size();
    a.Write(now);
    for (size_t i = before; i < a.wire.size(); ++i) {
      free_at = std::max(free_at, now) +
                static_cast<int64_t>(a.wire[i].size()) * kSecond / bytes_per_second;
      pipe.push_back({free_at, a.wire[i].size()});
      in_pipe += a.wire[i].size();
    }
    if (now > 2 * kSecond) worst = std::max(worst, free_at - now);
    most = std::max(most, in_pipe);
    while (!pipe.empty() && pipe.front().at <= now) {
      in_pipe -= pipe.front().bytes;
      pipe.pop_front();
      REQUIRE(b.Read(a, now).ok());
    }
    b.Write(now);
    while (!b.wire.empty()) REQUIRE(a.Read(b, now).ok());
    if (b.arrived.size() == 1) ended = now;
  }
  INFO("worst wait " << worst << " ns, most on its way " << most << " bytes, took " << ended);
  REQUIRE(ended != 0);
  CHECK(worst < 800 * kMillisecond);
  // And the link is not idle for it.
  CHECK(ended <
        static_cast<int64_t>(kBulk) * kSecond / bytes_per_second * 5 / 4 + 100 * kMillisecond);
}

TEST_CASE("a peer that was restarted gets what the old one never acknowledged, from number 1") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1);
  a.state.Flush();
  a.Write(0);
  REQUIRE(b.Read(a, 0).ok());
  b.Write(kSecond);
  REQUIRE(a.Read(b, kSecond).ok());  // Number 0 is acknowledged.
  b.Send(5);
  b.state.Flush();
  b.Write(0);
  while (!b.wire.empty()) REQUIRE(a.Read(b, 0).ok());
  a.Send(2);
  a.Send(1, 1'000'000);
  a.state.Flush();
  a.Write(0, 3);
  Cut(a, b);
  End fresh(WithStream(3));
  Connect(a, fresh, 0);
  fresh.Send(1);
  fresh.state.Flush();
  fresh.Write(0);
  REQUIRE(a.Read(fresh, 0).ok());
  CHECK(a.arrived == std::vector<uint64_t>{0, 1, 2, 3, 4, 0});
  for (Nanos now = 0; a.state.HasSomethingToSend() && now < kSecond; now += 20 * kMillisecond) {
    a.Write(now);
    while (!a.wire.empty()) REQUIRE(fresh.Read(a, now).ok());
    fresh.Write(now);
    while (!fresh.wire.empty()) REQUIRE(a.Read(fresh, now).ok());
  }
  CHECK(fresh.arrived == std::vector<uint64_t>{1, 2, 3});
}

TEST_CASE("a payload whose first pieces died with the old peer dies with it") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1, 1'000'000);
  a.state.Flush();
  a.Write(0, 3);
  while (!a.wire.empty()) REQUIRE(b.Read(a, 0).ok());
  b.Write(kSecond);
  REQUIRE(a.Read(b, kSecond).ok());  // Three pieces are acknowledged.
  a.Send(1);
  a.state.Flush();
  Cut(a, b);
  End fresh(WithStream(3));
  Connect(a, fresh, 0);
  a.Write(0);
  while (!a.wire.empty()) REQUIRE(fresh.Read(a, 0).ok());
  CHECK(fresh.arrived == std::vector<uint64_t>{1});
}

TEST_CASE("what waited for a connection of its own goes behind the frames of another link") {
  End a(WithStream(1)), b(WithStream(2)), waiting(WithStream(9));
  waiting.next_sent = 2;
  waiting.Send(3);
  Connect(a, b, 0);
  a.Send(2);
  a.state.Take(std::move(waiting.state));
  a.Write(0);
  while (!a.wire.empty()) REQUIRE(b.Read(a, 0).ok());
  CHECK(InOrder(b.arrived, 5));
}

TEST_CASE("a rename keeps its place among the frames") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  a.Send(1);
  a.state.QueueRename(kA);
  a.Write(0);
  REQUIRE(b.Read(a, 0).ok());
  CHECK(b.renamed == ProcessId{});
  REQUIRE(b.Read(a, 0).ok());
  CHECK(b.renamed == kA);
}

TEST_CASE("a peer that lies about the sequence loses its connection") {
  End a(WithStream(1)), b(WithStream(2));
  Connect(a, b, 0);
  MessageHeader header;
  header.magic = kMessageMagic;
  SECTION("it acknowledges what was never sent") { header.acknowledged = 1; }
  SECTION("it leaves a message out") {
    header.kind = MessageKind::kFrames;
    header.sequence = 2;
  }
  SECTION("it says that it sent frames and did not") {
    header.kind = MessageKind::kFrames;
    header.sequence = 1;
    header.frame_count = 1;
  }
  CHECK(a.state.Receive(header, nullptr, {}, 0).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(a.state.Connected(2, 1, 5, 0).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("every frame once and in order, over connections that are cut at any point") {
  const uint64_t seed = GENERATE(range(1, 41));
  SeededRandom random(seed);
  LinkState::Options options = WithStream(1);
  if (random.OneIn(2)) options.max_unacknowledged_bytes = 2'000;
  End a(options);
  options.stream = 2;
  End b(options);
  constexpr uint64_t kFrames = 3'000;
  Nanos now = 0;
  uint64_t cuts = 0, step = 0;
  bool connected = false;
  while (a.arrived.size() < kFrames || b.arrived.size() < kFrames) {
    REQUIRE(++step < 2'000'000);
    now += static_cast<Nanos>(random.Below(5)) * kMillisecond;
    if (!connected) {
      Connect(a, b, now);
      connected = true;
    }
    const bool ab = random.OneIn(2);
    End& sender = ab ? a : b;
    End& receiver = ab ? b : a;
    switch (random.Below(8)) {
      case 0:
        if (sender.next_sent < kFrames) {
          const size_t size = random.OneIn(300) ? 400'000 : random.Below(200);
          sender.Send(std::min(1 + random.Below(20), kFrames - sender.next_sent), size);
          if (!random.OneIn(3) || sender.next_sent == kFrames) sender.state.Flush();
        }
        break;
      case 1:
        receiver.HandOver();
        break;
      case 2:
        if (random.OneIn(20)) {
          Cut(a, b);  // What lies on the wire is gone.
          connected = false;
          ++cuts;
        }
        break;
      case 3:
      case 4:
        sender.Write(now, 1 + random.Below(3));
        break;
      default:
        if (!sender.wire.empty()) {
          const absl::Status status = receiver.Read(sender, now, random.OneIn(2));
          REQUIRE(status.ToString() == "OK");
        }
    }
  }
  INFO("seed " << seed);
  CHECK(InOrder(a.arrived, kFrames));
  CHECK(InOrder(b.arrived, kFrames));
  CHECK(cuts > 10);
}

}  // namespace link_state_test
}  // namespace sheaf
