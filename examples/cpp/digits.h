// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Trains a classifier of handwritten digits: data-parallel workers and a parameter server, all
// actors.
#pragma once

#include <string>

namespace examples {

// Trains on `data` (an .npz file), then once more in this process alone, and compares. False: the
// weights differ, or fewer than 93 % of the test images are recognised.
bool RunDigits(const std::string& data);

}  // namespace examples
