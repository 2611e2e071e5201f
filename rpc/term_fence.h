// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which GCS a process follows, and which connections it may make for that. A term fences
// connections, not messages: both ends of a new connection tell the term that they follow, and each
// compares it before it takes the first frame. Pure; runs unchanged in tests/sim. Not thread-safe.
#pragma once

#include "absl/status/status.h"
#include "rpc/gcs_term.h"

namespace sheaf {

class TermFence {
 public:
  // Of the GCS here, or else of the one with which a connection was made last.
  const GcsTerm& term() const { return term_; }
  // The GCS here has begun this term.
  void SetTerm(const GcsTerm& term) { term_ = term; }

  // Whether a connection with another process may be made, which tells that it follows `peer`.
  // `gcs_here`: the GCS runs in this process; `peer_is_gcs`: the connection leads to the GCS there.
  // kAborted: the term of the GCS here is over. kUnavailable: the peer is a GCS whose term is. From
  // an OK on the GCS at the other end is the one that is followed.
  absl::Status Compare(bool gcs_here, bool peer_is_gcs, const GcsTerm& peer);
  // The same verdict, as the other end hears it: whose own term is over hears kAborted.
  static absl::Status ForPeer(const absl::Status& verdict);

 private:
  GcsTerm term_;
};

}  // namespace sheaf
