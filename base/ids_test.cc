// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <catch2/catch.hpp>

namespace sheaf {

SCENARIO("an object id names its owner and its task") {
  const TaskId task = TaskId::Make({3, 17}, 42);
  const ObjectId second = ReturnOf(task, 1);
  CHECK(second.maker() == ProcessId{3, 17});
  CHECK(second.index() == 2);
  CHECK(TaskOf(second) == task);
}

SCENARIO("a process is named by its node and a number, and nothing else passes as one") {
  CHECK(ProcessId::FromText("3.17").value() == ProcessId{3, 17});
  CHECK(ProcessId::FromText(ProcessId{UINT32_MAX, UINT32_MAX}.ToString()).ok());
  for (const char* bad : {"", ".", "3", "3.", ".17", "3.0", "0.17", "3.17.1", "-3.17", " 3.17",
                          "3.17 ", "+3.17", "3.+17", "3.4294967296", "x.y"}) {
    INFO(bad);
    CHECK_FALSE(ProcessId::FromText(bad).ok());
  }
}

SCENARIO("ids survive both of their text forms, and nothing else passes as one") {
  const ObjectId id = ObjectId::Make({1, 2}, ObjectId::kMaxSequence, 0xffff);
  CHECK(ObjectId::FromBinary(id.Binary()).value() == id);
  CHECK(ObjectId::FromHex(id.ToHex()).value() == id);
  CHECK_FALSE(ObjectId::FromBinary("short").ok());
  CHECK_FALSE(ObjectId::FromHex(std::string(32, 'g')).ok());
  CHECK_FALSE(ObjectId::FromHex("0x" + id.ToHex().substr(2)).ok());
  CHECK_FALSE(ObjectId::FromHex("").ok());
}

}  // namespace sheaf
