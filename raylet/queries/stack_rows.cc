// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/stack_rows.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/message_limits.h"
#include "base/status_macros.h"
#include "raylet/queries/row_budget.h"

namespace sheaf {
namespace {

constexpr size_t kMaxStacksBytes = 1 << 20;  // Of one process.
static_assert(kMaxStateBytes + kMaxStacksBytes < kMaxBodyBytes);

proto::ProcessStacks* RowOf(uint64_t process, StateAsked& asked) {
  for (proto::ProcessStacks& row : *asked.answer.mutable_stacks()) {
    if (row.process() == process) return &row;
  }
  return nullptr;
}

void AddWords(absl::string_view words, proto::ProcessStacks& row) {
  if (words.empty()) return;
  absl::StrAppend(row.mutable_words(), row.words().empty() ? "" : "; ", words);
}

}  // namespace

absl::StatusOr<NodeNumber> NodeOfStacks(const proto::StateQuery& question) {
  if (question.id().empty()) return question.node();
  SHEAF_ASSIGN_OR_RETURN(const ProcessId process, ProcessId::FromText(question.id()));
  return process.node;
}

bool IsAboutStacksOf(const proto::StateQuery& question, ProcessId process) {
  if (!question.id().empty()) return process.ToString() == question.id();
  return question.node() == 0 || question.node() == process.node;
}

void AddStacks(ProcessId from, proto::StateAnswer& message, StateAsked& asked) {
  if (from.is_raylet()) {
    RowBudget budget(asked);
    return budget.Append(message.mutable_stacks(), asked.answer.mutable_stacks());
  }
  proto::ProcessStacks* const row = RowOf(from.packed(), asked);
  if (row == nullptr || message.stacks_size() != 1) return;
  proto::ProcessStacks& told = *message.mutable_stacks(0);
  const size_t bytes = told.ByteSizeLong();
  if (bytes > kMaxStacksBytes || asked.stacks_bytes > kMaxStateBytes) {
    asked.answer.set_truncated(true);
    return AddWords("its stacks are left out: ask for this process alone", *row);
  }
  asked.stacks_bytes += bytes;
  asked.bytes += bytes;
  *row->mutable_threads() = std::move(*told.mutable_threads());
  AddWords(told.words(), *row);
}

void AddKernelStacks(const std::vector<proto::ProcessStacks>& described, StateAsked& asked) {
  for (const proto::ProcessStacks& process : described) {
    if (proto::ProcessStacks* const row = RowOf(process.process(), asked)) *row = process;
  }
}

void SayOfProcess(ProcessId process, absl::string_view words, StateAsked& asked) {
  if (proto::ProcessStacks* const row = RowOf(process.packed(), asked)) AddWords(words, *row);
}

std::vector<proto::ProcessStacks> StacksToDescribe(NodeNumber node, const StateAsked& asked) {
  std::vector<proto::ProcessStacks> found;
  for (const proto::ProcessStacks& row : asked.answer.stacks()) {
    if (ProcessId::Unpack(row.process()).node == node && row.threads().empty() &&
        row.words() != kEndedMeanwhile)
      found.push_back(row);
  }
  return found;
}

}  // namespace sheaf
