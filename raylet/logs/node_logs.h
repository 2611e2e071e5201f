// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The logs of this node, as an interface: on real nodes they are read on a thread of their own;
// where time is virtual there are none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/raylet.pb.h"

namespace sheaf {

class NodeLogs {
 public:
  virtual ~NodeLogs() = default;
  // Calls `done`, later, on the raylet's thread, with the answer to LOG_LIST or LOG_READ.
  virtual void Ask(const proto::StateQuery& query,
                   std::function<void(proto::StateAnswer)> done) = 0;
  // Deletes these, with their older parts.
  virtual void Remove(std::vector<std::string> names) = 0;
};

}  // namespace sheaf
