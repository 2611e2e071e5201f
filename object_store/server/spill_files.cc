// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/spill_files.h"

#include <utility>

namespace sheaf {

void SpillFiles::Forget(ObjectRecord& record) {
  if (record.disk.file == 0) return;
  const auto file = objects_in_.find(std::exchange(record.disk, {}).file);
  if (file == objects_in_.end() || --file->second != 0) return;
  const uint64_t number = file->first;
  objects_in_.erase(file);
  loop_.RunElsewhere(disk_, [&spill = spill_, number] { spill.Remove(number); }, [] {});
}

}  // namespace sheaf
