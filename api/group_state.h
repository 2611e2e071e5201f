// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a sheaf::collective::Group points to, and its failures as exceptions.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "collective/communicator.h"
#include "sheaf/collective.h"

namespace sheaf::inline v1::collective {

struct GroupState {
  std::unique_ptr<Communicator> communicator;
  Nanos timeout;
};

// Throws what `status` means, if it is not OK.
void ThrowIfFailed(const absl::Status& status);
// Throws InvalidArgumentError: the group was never formed.
Communicator& CommunicatorIn(const std::shared_ptr<GroupState>& state);

}  // namespace sheaf::inline v1::collective
