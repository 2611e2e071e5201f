// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Tells a torn end of an SQLite write-ahead log from damage in its middle. SQLite itself stops
// reading at the first bad frame, whatever follows: right for a torn end, but silent loss of
// acknowledged writes for a flipped bit.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf {

// OK: there is no log at `path`, or every bad frame may belong to a transaction whose write was
// never completed. kDataLoss: a bad frame lies before the end of a completed transaction; the
// message names file and offset. Sees no damage inside the last transaction: it cannot be told from
// a torn end.
absl::Status CheckWriteAheadLog(const std::string& path);

}  // namespace sheaf
