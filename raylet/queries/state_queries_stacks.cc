// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is particular to questions about stacks: a process that does not answer is not left out.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "raylet/queries/stack_rows.h"
#include "raylet/queries/state_queries.h"

namespace sheaf {

// False: the question has its answer, or is about this node alone.
bool StateQueries::AddAskedNode(Query& query) {
  const absl::StatusOr<NodeNumber> node = NodeOfStacks(query.asked.message);
  if (!node.ok()) {
    query.asked.answer.set_error(std::string(node.status().message()));
  } else if (*node != 0 && *node != deps_.node) {
    const NodeView* const seen = deps_.view.Find(*node);
    if (seen == nullptr || !seen->alive)
      query.asked.answer.set_error(absl::StrCat("there is no node ", *node, " now"));
    query.nodes_to_ask.push_back(*node);
  }
  return node.ok() && *node != deps_.node;
}

// Of the processes of this node that have not told their stacks the kernel tells something.
void StateQueries::AskKernel(uint64_t number, Query& query) {
  query.stacks_until = 0;
  for (auto it = query.waits_for.begin(); it != query.waits_for.end();) {
    if (it->is_raylet()) {
      ++it;
    } else {
      SayOfProcess(*it, "it does not answer", query.asked);
      it = query.waits_for.erase(it);
    }
  }
  std::vector<proto::ProcessStacks> unknown = StacksToDescribe(deps_.node, query.asked);
  if (unknown.empty() || deps_.process_states == nullptr) return;
  query.waits_for_kernel = true;
  deps_.process_states->Describe(
      std::move(unknown), [this, number](const std::vector<proto::ProcessStacks>& described) {
        OnKernel(number, described);
      });
}

void StateQueries::OnKernel(uint64_t number, const std::vector<proto::ProcessStacks>& described) {
  const auto it = queries_.find(number);
  if (it == queries_.end() || !std::exchange(it->second.waits_for_kernel, false)) return;
  AddKernelStacks(described, it->second.asked);
  FinishIfComplete(number);
}

bool StateQueries::WaitsForProcesses(const Query& query) {
  return std::any_of(query.waits_for.begin(), query.waits_for.end(),
                     [](ProcessId process) { return !process.is_raylet(); });
}

}  // namespace sheaf
