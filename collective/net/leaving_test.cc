// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a rank sent arrives, whenever the rank leaves. Ranks are processes here.
#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "collective/ranks_for_test.h"

namespace sheaf {
namespace {

using enum Implementation;
using testing::Form;
using testing::Ranks;
using testing::Words;

TEST_CASE("a rank may leave as soon as its part is done, whatever the others still read",
          "[faults]") {
  const auto implementation = GENERATE(kShm, kApart, kHierarchical);
  constexpr size_t kCount = 3 << 20;
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 3, rendezvous);
      std::vector<float> array(kCount, rank == 0 ? 7.0f : 0.0f);
      const absl::Status status = group->Broadcast(array.data(), kCount, DataType::kFloat32, 0);
      group.reset();
      Ranks::Say(Words(status) + " " + std::to_string(array[kCount - 1]));
    });
  }
  for (size_t rank = 0; rank < 3; ++rank) CHECK(ranks.Line(rank) == "OK -1:  7.000000");
}

TEST_CASE("what a rank sent arrives though it left without reading what it was sent", "[faults]") {
  const auto implementation = GENERATE(kApart, kHierarchical);
  constexpr size_t kCount = 1 << 20;
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, [&](int rank, Rendezvous& rendezvous) {
      auto group = Form(implementation, rank, 2, rendezvous);
      std::vector<uint8_t> array(kCount, rank == 0 ? 7 : 0);
      if (rank == 1) {  // What nobody receives.
        Ranks::Say(Words(group->Send(array.data(), 64 << 10, DataType::kUint8, 0)));
      }
      group->Barrier().IgnoreError();
      if (rank == 0) {
        const absl::Status sent = group->Send(array.data(), kCount, DataType::kUint8, 1);
        group.reset();
        Ranks::Say(Words(sent));
        return;
      }
      raise(SIGSTOP);  // Most of the message is still on its way while the sender goes.
      const absl::Status status = group->Receive(array.data(), kCount, DataType::kUint8, 0);
      Ranks::Say(Words(status) + " " + std::to_string(array[kCount - 1]));
    });
  }
  CHECK(ranks.Line(1) == "OK -1: ");
  CHECK(ranks.Line(0) == "OK -1: ");
  kill(ranks.pid(1), SIGCONT);
  CHECK(ranks.Line(1) == "OK -1:  7");
}

}  // namespace
}  // namespace sheaf
