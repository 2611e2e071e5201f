// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which process people mean when they name a pid, an actor or a task.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "dashboard/asker.h"

namespace sheaf::dashboard {

// One of the three is set.
struct ProcessName {
  std::string pid{};    // In decimal; of a worker or a driver.
  std::string actor{};  // 32 hexadecimal digits, as listings have them.
  std::string task{};
  std::vector<NodeNumber>
      nodes{};  // Of one of these, or, if there are none, of any: the first one.
};

// Asks the cluster; blocks. kInvalidArgument: no number. kNotFound: nothing that runs has that name.
absl::StatusOr<ProcessId> FindProcess(const AskNode& ask, const ProcessName& name);

// The nodes that a request means by `node_id`, or by `ip` (either may be empty): several may stand at
// one address, of which `here` comes first. None: it names none. kInvalidArgument, kNotFound: there is
// none of that name.
absl::StatusOr<std::vector<NodeNumber>> FindNodes(const AskNode& ask, std::string_view node_id,
                                                  std::string_view ip, NodeNumber here = 0);
// Whether `process` is on one of them, or there are none.
bool IsOnOneOf(const std::vector<NodeNumber>& nodes, ProcessId process);
// The first of them; 0: the request names none.
absl::StatusOr<NodeNumber> FindNode(const AskNode& ask, std::string_view node_id,
                                    std::string_view ip, NodeNumber here = 0);

}  // namespace sheaf::dashboard
