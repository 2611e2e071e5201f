// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a connection begins: each side shows that it knows the cluster's token without saying it, and
// they tell each other who they are and what they have of each other's stream.
//
//   dialler  -> acceptor   Hello      a nonce
//   acceptor -> dialler    Challenge  a nonce
//   dialler  -> acceptor   Proof      who I am, whom I want; HMAC(token, "dialler", all so far)
//   acceptor -> dialler    Verdict    who I am, or why not;  HMAC(token, "acceptor", all so far)
//
// All of it enters the session key, which proves the fetches of this session. Each message has at
// most kMaxHandshakeBytes; what comes before a right proof is two messages, one of fixed size.
// Somebody who sits on the wire can read and, after the handshake, speak: certificates are for
// that, the token keeps away who only reaches the port.
//
// Pure: nonces come in, bytes come out. The format of Hello and Challenge never changes; `version`
// is compared after both proofs, so that a version is told to members of the cluster only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "rpc/gcs_term.h"
#include "rpc/security/hmac.h"

namespace sheaf {

inline constexpr size_t kMaxHandshakeBytes = 1024;
inline constexpr size_t kMaxVersionBytes = 128;
inline constexpr size_t kMaxReasonBytes = 512;

// What one end says of itself.
struct Introduction {
  ProcessId end;
  bool guest = false;            // The raylet has no number yet; `end` is {0, 0}.
  ProcessId wanted;              // Dialler only: whom it dials.
  uint64_t incarnation = 0;      // Of the process.
  uint64_t stream = 0;           // Of this end of the link; not 0.
  uint64_t known_stream = 0;     // Of the other end, as far as this end knows; 0: none.
  uint64_t has_messages = 0;     // Of `known_stream`.
  uint64_t lost_connection = 0;  // Dialler only: the last connection that it had; 0: none.
  GcsTerm gcs_term;              // The last that it knows of: its own, if it is the GCS.
  std::string version;
};

// Dialler's half. Greet, then Answer, then Conclude, each once.
class DiallerHandshake {
 public:
  DiallerHandshake(std::string token, const Digest& nonce) : token_(std::move(token)) {
    nonce_ = nonce;
  }
  std::string Hello();
  // kInvalidArgument: not a Challenge.
  absl::StatusOr<std::string> Answer(std::string_view challenge, const Introduction& self);
  // Who answers. kUnauthenticated: it does not know the token. Others: what the acceptor says
  // against it (kFailedPrecondition: another version), or kInvalidArgument: not a Verdict.
  absl::StatusOr<Introduction> Conclude(std::string_view verdict);
  const Digest& session_key() const { return session_key_; }
  uint64_t connection() const { return connection_; }

 private:
  const std::string token_;
  Digest nonce_;
  std::string hello_, challenge_, proof_;
  Digest session_key_{};
  uint64_t connection_ = 0;
};

// Acceptor's half: Challenge, then Check, then Accept or Refuse, each once.
class AcceptorHandshake {
 public:
  AcceptorHandshake(std::string token, const Digest& nonce) : token_(std::move(token)) {
    nonce_ = nonce;
  }
  // kInvalidArgument: not a Hello.
  absl::StatusOr<std::string> Challenge(std::string_view hello);
  // Who dials. kUnauthenticated: it does not know the token; it is told nothing.
  absl::StatusOr<Introduction> Check(std::string_view proof);
  // The Verdict.
  std::string Accept(const Introduction& self);
  // `reason` is not ok.
  std::string Refuse(const absl::Status& reason);
  const Digest& session_key() const { return session_key_; }
  uint64_t connection() const { return connection_; }

 private:
  std::string Finish(std::string verdict);

  const std::string token_;
  Digest nonce_;
  std::string hello_, challenge_, proof_;
  Digest session_key_{};
  uint64_t connection_ = 0;
};

// kFailedPrecondition, naming both, unless they are the same.
absl::Status SameVersion(std::string_view self, std::string_view peer);

}  // namespace sheaf
