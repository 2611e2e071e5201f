// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a fetch shows that it comes from the other end of a link: by the key that both ends drew from
// the link's handshake. Each fetch has a number, so that none is accepted twice.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "rpc/security/hmac.h"

namespace sheaf {

// What a fetch carries in front of its request: fixed size, all that is parsed before the MAC.
struct FetchTicket {
  uint64_t connection = 0;  // That the key was drawn from.
  uint64_t number = 0;      // From 1, one more each time.
  Digest request_hash{};
  Digest mac{};
};
static_assert(sizeof(FetchTicket) == 80);

FetchTicket MakeTicket(const Digest& key, uint64_t connection, uint64_t number,
                       std::string_view request);
inline std::string EncodeTicket(const FetchTicket& ticket) {
  return {reinterpret_cast<const char*>(&ticket), sizeof ticket};
}
// kInvalidArgument: another size.
absl::StatusOr<FetchTicket> DecodeTicket(std::string_view bytes);

// The asked end's memory of one connection. Not thread-safe.
class FetchSession {
 public:
  FetchSession(const Digest& key, ProcessId peer) : key_(key), peer_(peer) {}
  // kUnauthenticated: another key, or a number that was here before (or is 4,096 behind).
  absl::Status Check(const FetchTicket& ticket);
  ProcessId peer() const { return peer_; }
  void Rename(ProcessId peer) { peer_ = peer; }

 private:
  static constexpr uint64_t kWindow = 4096;
  const Digest key_;
  ProcessId peer_;
  uint64_t highest_ = 0;
  std::bitset<kWindow> seen_;  // Of the numbers (highest_ - kWindow, highest_], by remainder.
};

}  // namespace sheaf
