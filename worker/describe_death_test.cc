// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/describe_death.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace describe_death_test {

proto::Death Death(proto::Death::Cause cause, int code, const char* message) {
  proto::Death death;
  death.set_cause(cause);
  death.set_code(code);
  death.set_message(message);
  return death;
}

TEST_CASE("a death is told once, however many tell of it", "[describe_death]") {
  CHECK(DescribeDeath(Death(proto::Death::EXITED, 1, "exited with status 1")) ==
        "exited with status 1");
  CHECK(DescribeDeath(Death(proto::Death::SIGNALLED, 9, "killed by signal 9 (Killed)")) ==
        "was killed by signal 9 (Killed)");
  CHECK(DescribeDeath(
            Death(proto::Death::SIGNALLED, 11, "killed by signal 11 (Segmentation fault), core")) ==
        "was killed by signal 11 (Segmentation fault), core");
  CHECK(DescribeDeath(Death(proto::Death::EXITED, 1, "")) == "exited with status 1");
  CHECK(DescribeDeath(Death(proto::Death::KILLED, 0, "its driver left")) ==
        "was ended on request: its driver left");
}

}  // namespace describe_death_test
}  // namespace sheaf
