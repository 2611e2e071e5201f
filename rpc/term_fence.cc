// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/term_fence.h"

#include "absl/strings/str_cat.h"

namespace sheaf {

absl::Status TermFence::Compare(bool gcs_here, bool peer_is_gcs, const GcsTerm& peer) {
  const auto words = [](const GcsTerm& old, const GcsTerm& now) {
    return absl::StrCat("the term ", old.term, " of the GCS is over: its cluster follows a later ",
                        "start from what the disk had, in term ", now.term);
  };
  if (gcs_here && peer.Replaces(term_)) return absl::AbortedError(words(term_, peer));
  if (peer_is_gcs && term_.Replaces(peer)) return absl::UnavailableError(words(peer, term_));
  if (peer_is_gcs && !gcs_here) term_ = peer;
  return absl::OkStatus();
}

absl::Status TermFence::ForPeer(const absl::Status& verdict) {
  return absl::Status(
      absl::IsAborted(verdict) ? absl::StatusCode::kUnavailable : absl::StatusCode::kAborted,
      verdict.message());
}

}  // namespace sheaf
