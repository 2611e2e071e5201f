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
