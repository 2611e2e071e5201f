// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The rows of an answer about stacks: one of each process that is asked, filled by what it answers, or
// else by what the kernel says of it. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "raylet/queries/state_rows.h"

namespace sheaf {

// The one node whose processes `question` (STACKS) is about; 0: it is about those of all nodes.
// kInvalidArgument: its id names no process.
absl::StatusOr<NodeNumber> NodeOfStacks(const proto::StateQuery& question);
// Whether `process` is one of those that it is about.
bool IsAboutStacksOf(const proto::StateQuery& question, ProcessId process);

// Takes in what `from` answered: a raylet those rows that it has, any process its own alone.
void AddStacks(ProcessId from, proto::StateAnswer& message, StateAsked& asked);
// Takes in what the kernel said.
void AddKernelStacks(const std::vector<proto::ProcessStacks>& described, StateAsked& asked);
inline constexpr absl::string_view kEndedMeanwhile = "it has ended meanwhile";
// It will not answer.
void SayOfProcess(ProcessId process, absl::string_view words, StateAsked& asked);
// Those of `node` that live, and have no threads: of them the kernel is to be asked.
std::vector<proto::ProcessStacks> StacksToDescribe(NodeNumber node, const StateAsked& asked);

}  // namespace sheaf
