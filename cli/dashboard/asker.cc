// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/dashboard/asker.h"

#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "dashboard/tables/listing.h"

namespace sheaf::cli {

dashboard::AskNode AskerOf(const std::string& session) {
  return [node = std::make_shared<KeptNode>(session)](
             const proto::StateQuery& query, Nanos timeout) -> absl::StatusOr<proto::StateAnswer> {
    SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, node->Ask(query, timeout));
    if (query.what() == proto::StateQuery::TASKS) {
      const std::vector<proto::TaskRow> merged = MergedTasks(answer);
      answer.mutable_tasks()->Assign(merged.begin(), merged.end());
    }
    return answer;
  };
}

}  // namespace sheaf::cli
