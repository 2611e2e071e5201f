// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A StoreRefusal as the status that Create returns. StoreErrorKind (store_client.h) reads it back.
#pragma once

#include "absl/status/status.h"
#include "object_store/messages.h"

namespace sheaf {

absl::Status RefusalStatus(const StoreRefusal& refusal);

}  // namespace sheaf
