// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sheaf {

// How many cores this process may run on; at least 1.
int UsableCores();

}  // namespace sheaf
