// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/spill_disk.h"

#include <cstring>

namespace sheaf::sim {

absl::StatusOr<std::vector<SpillRecord>> SpillDisk::Write(
    uint64_t file, std::span<const std::span<const std::byte>> pieces) {
  if (world_.now() < full_until_) return absl::ResourceExhaustedError("the simulated disk is full");
  const uint64_t one_in = world_.faults.spill_write_fault_one_in;
  if (one_in != 0 && world_.random.OneIn(one_in)) {
    world_.Count(Fault::kSpillWrite);
    world_.oracle.StoresMayBeFull();
    return absl::InternalError("the simulated disk did not write");
  }
  std::vector<SpillRecord> records;
  std::string bytes;
  for (const auto piece : pieces) {
    world_.Count(Fault::kSpilled);
    records.push_back({.file = file, .offset = bytes.size(), .bytes = piece.size(), .crcs = {}});
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  if (world_.Planted(Plant::kTornSpill, 4)) bytes.resize(bytes.size() / 2);
  files_[file] = std::move(bytes);
  return records;
}

absl::Status SpillDisk::Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) {
  const uint64_t one_in = world_.faults.spill_read_fault_one_in;
  if (one_in != 0 && world_.random.OneIn(one_in)) {
    world_.Count(Fault::kSpillRead);
    return absl::DataLossError("the simulated disk lost it");
  }
  const auto found = files_.find(record.file);
  if (found == files_.end()) return absl::DataLossError("no such file");
  std::string& file = found->second;
  // A planted bug: the checks of the real files (object_store/server/spill.cc) are not made.
  if (record.offset + record.bytes > file.size()) {
    if (world_.plant != Plant::kTornSpill) return absl::DataLossError("the file is too short");
    file.resize(record.offset + record.bytes);
  }
  std::memcpy(to.data(), file.data() + record.offset + from, to.size());
  world_.Count(Fault::kRestored);
  return absl::OkStatus();
}

}  // namespace sheaf::sim
