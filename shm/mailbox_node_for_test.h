// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: three processes of a node with a mailbox each, in one process.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "shm/mailbox.h"

namespace sheaf {

inline constexpr ProcessId kAnna{1, 1}, kBert{1, 2}, kCora{1, 3};
inline constexpr uint32_t kAnnaBell = 1, kBertBell = 2, kCoraBell = 3;

inline std::string Content(uint64_t seed, size_t size) {
  SeededRandom random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.Next());
  return text;
}

// Keeps what it gets; `then` runs inside the handler.
struct FrameKeeper final : FrameHandler {
  void OnFrame(ProcessId from, const Frame& frame) override {
    got[from].emplace_back(frame.kind, frame.body);
    if (then) then(from, frame);
  }
  void OnMalformed(ProcessId from) override { malformed.push_back(from); }
  size_t Count(ProcessId from) { return got[from].size(); }
  std::string Last(ProcessId from) { return got[from].back().second; }

  std::map<ProcessId, std::vector<std::pair<FrameKind, std::string>>> got;
  std::vector<ProcessId> malformed;
  std::function<void(ProcessId, const Frame&)> then;
};

// Anna, Bert and Cora, three processes of a node, here in one.
struct MailboxNode {
  Bell* bells() { return reinterpret_cast<Bell*>(board.data()); }
  std::unique_ptr<Mailbox> MakeMailbox(uint32_t bell) {
    return std::make_unique<Mailbox>(bells(), bell,
                                     [this](ProcessId peer) { contacts.push_back(peer); });
  }
  UniqueFd MakePair() { return MakeSegment("ring pair", kRingPairBytes).value(); }
  void Connect() {
    UniqueFd pair = MakePair();
    REQUIRE(anna->AddRing(kBert, pair.get(), true, kBertBell).ok());
    REQUIRE(bert->AddRing(kAnna, pair.get(), false, kAnnaBell).ok());
  }

  UniqueFd board_fd = MakeSegment("bells", kBellBoardBytes).value();
  Mapping board = Mapping::Map(board_fd.get(), 0, kBellBoardBytes, Access::kReadWrite).value();
  std::vector<ProcessId> contacts;
  std::unique_ptr<Mailbox> anna = MakeMailbox(kAnnaBell), bert = MakeMailbox(kBertBell);
  FrameKeeper at_anna, at_bert;
};

}  // namespace sheaf
