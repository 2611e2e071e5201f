// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/worker_variables.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace worker_variables_test {

using Variables = std::vector<std::string>;

TEST_CASE("of a driver's environment only what code and libraries are found by leaves its node",
          "[variables]") {
  proto::JobStart start;
  for (const char* one :
       {"AWS_SECRET_ACCESS_KEY=s", "SHEAF_TOKEN=t", "PYTHONPATH=/code", "PATH=/bin",
        "PYTHONPATH_OF_MINE=/x", "LD_LIBRARY_PATH=/lib", "SHEAF_DIR=/d", "strange"})
    start.add_environ(one);
  KeepWhatTravels(&start);
  CHECK(Variables(start.environ().begin(), start.environ().end()) ==
        Variables{"PYTHONPATH=/code", "LD_LIBRARY_PATH=/lib"});
}

TEST_CASE("no worker gets the cluster's token or another worker's marks", "[variables]") {
  const Variables own = {"HOME=/root", "SHEAF_TOKEN=t", "SHEAF_TOKEN_FILE=/f",
                         "SHEAF_FAILPOINT=a:kill", "SHEAF_WORKER=w"};
  CHECK(ForWorkers(own) ==
        Variables{"HOME=/root", "SHEAF_TOKEN_FILE=/f", "SHEAF_FAILPOINT=a:kill"});
  CHECK(OfNode(own) == Variables{"HOME=/root", "SHEAF_TOKEN_FILE=/f"});
}

TEST_CASE("values may name other variables", "[variables]") {
  const Variables own = {"HOME=/root", "HOMES=/homes", "EMPTY="};
  Variables over = {"A=${HOME}:x", "B=$HOME/$HOMES", "C=${NONE}$NONE", "D=${EMPTY}|$EMPTY|",
                    "E=costs 5$",  "F=${HOME",       "G=$$HOME",       "H=${A}"};
  Expand(own, &over);
  CHECK(over == Variables{"A=/root:x", "B=/root//homes", "C=$NONE", "D=||", "E=costs 5$",
                          "F=${HOME", "G=$/root", "H=/root:x"});
}

TEST_CASE("what is put over an environment takes the place of what was there", "[variables]") {
  Variables variables = {"A=1", "AB=2", "A=3"};
  PutOver({"A=4", "C="}, &variables);
  CHECK(variables == Variables{"AB=2", "A=4", "C="});
}

}  // namespace worker_variables_test
}  // namespace sheaf
