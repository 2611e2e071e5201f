// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What each end of a connection says to the other's term; links_security_test.cc has it over real
// sockets.
#include "rpc/term_fence.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace term_fence_test {

const GcsTerm kOld = GcsTerm::Of("the cluster's id", 4), kNew = GcsTerm::Of("the cluster's id", 5);

TEST_CASE("a node follows the GCS that it dialled last, and none of an older term") {
  TermFence node;
  REQUIRE(node.Compare(false, true, kOld).ok());
  CHECK(node.term().term == 4);
  CHECK(node.Compare(false, false, kNew).ok());  // Another node's word makes it follow nobody.
  CHECK(node.term().term == 4);
  REQUIRE(node.Compare(false, true, kNew).ok());
  const absl::Status refused = node.Compare(false, true, kOld);
  CHECK(absl::IsUnavailable(refused));
  CHECK(absl::IsAborted(TermFence::ForPeer(refused)));
  CHECK(node.term().term == 5);
}

TEST_CASE("a GCS ends when anybody follows a later one of its cluster, and follows nobody itself") {
  TermFence gcs;
  gcs.SetTerm(kOld);
  CHECK(gcs.Compare(true, false, kOld).ok());
  CHECK(gcs.Compare(true, false, {}).ok());  // Who follows none yet.
  CHECK(gcs.Compare(true, false, GcsTerm::Of("another cluster", 9)).ok());
  const absl::Status over = gcs.Compare(true, false, kNew);
  CHECK(absl::IsAborted(over));
  CHECK(absl::IsUnavailable(TermFence::ForPeer(over)));
  CHECK(gcs.term().term == 4);
}

}  // namespace term_fence_test
}  // namespace sheaf
