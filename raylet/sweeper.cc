// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/sweeper.h"

#include <algorithm>

namespace sheaf {

void Sweeper::Begin() {
  began_at_ = clock_.Now();
  total_ = 0;
  done_ = 0;
  for (const std::unique_ptr<Table>& table : tables_) {
    table->size = table->List();
    table->done = 0;
    total_ += table->size;
  }
}

void Sweeper::Tick() {
  if (began_at_ < 0) Begin();
  const Nanos elapsed = std::min(clock_.Now() - began_at_, kPass);
  // Microseconds, so that the product does not overflow.
  const size_t due = total_ * static_cast<size_t>(elapsed / kMicrosecond) /
                     static_cast<size_t>(kPass / kMicrosecond);
  for (const std::unique_ptr<Table>& table : tables_) {
    for (; table->done < table->size && done_ < due; ++table->done, ++done_) {
      if (!table->Check(table->done)) continue;
      ++repaired_;
      last_repaired_ = table->name;
    }
  }
  if (elapsed < kPass) return;
  ++passes_;
  Begin();
}

}  // namespace sheaf
