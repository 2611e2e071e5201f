// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Counts the words of a folder of source files, as map and reduce.
#pragma once

#include <string>

namespace examples {

// Counts in parallel, counts again in this process alone, and compares. False: they differ, or
// there are no files.
bool RunWordCount(const std::string& folder);

}  // namespace examples
