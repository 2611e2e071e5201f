// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a fetch shows that it comes from the other end of a link, and who answers that it is that end:
// by the key that both drew from the link's handshake. Each fetch has a number, so that none is
// accepted twice. Who answers signs a number that was never used before, and which of the ends of
// the link it is, so that nobody can have the asking end sign its own question.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
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

// What the asked end shows first. `dialled`: it is the end that dialled the link.
Digest ProofOfAnswerer(const Digest& key, uint64_t connection, bool dialled, const Digest& nonce);

// The asked end's memory of one connection. Not thread-safe.
class FetchSession {
 public:
  // `dialled`: this end dialled the link.
  FetchSession(const Digest& key, uint64_t connection, bool dialled, ProcessId peer)
      : key_(key), connection_(connection), dialled_(dialled), peer_(peer) {}
  // kUnauthenticated: another key, or a number that was here before (or is 4,096 behind).
  absl::Status Check(const FetchTicket& ticket);
  Digest Proof(const Digest& nonce) const {
    return ProofOfAnswerer(key_, connection_, dialled_, nonce);
  }
  ProcessId peer() const { return peer_; }
  void Rename(ProcessId peer) { peer_ = peer; }

 private:
  static constexpr uint64_t kWindow = 4096;
  const Digest key_;
  const uint64_t connection_;
  const bool dialled_;
  ProcessId peer_;
  uint64_t highest_ = 0;
  std::bitset<kWindow> seen_;  // Of the numbers (highest_ - kWindow, highest_], by remainder.
};

}  // namespace sheaf
