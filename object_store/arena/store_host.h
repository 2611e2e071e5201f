// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the raylet's side of the store needs of the world, and what it tells the raylet: interfaces,
// so that tests/sim runs it under virtual time. Real ones: arena_memory.h, spill.h, and the raylet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace sheaf {

// The bytes of the arena and the memory behind them.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  // The whole arena, writable, from byte 0.
  virtual std::byte* data() = 0;
  virtual uint64_t size_bytes() const = 0;

  // On any thread but the loop's; ranges are multiples of kGranuleBytes.
  // Makes the pages exist, so that nobody's first touch can fail. kResourceExhausted: there is no
  // memory for them; asked before the kernel is, which would kill.
  virtual absl::Status Populate(uint64_t offset, uint64_t bytes) = 0;
  // Gives the pages back to the machine; the range reads as zeros then.
  virtual void Discard(uint64_t offset, uint64_t bytes) = 0;
};

// Where one object lies on disk.
struct SpillRecord {
  // A part of an object is read in blocks of this size, each of which is checked by itself.
  static constexpr uint64_t kBlockBytes = 256 * 1024;

  uint64_t file = 0;  // 0: nowhere.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> crcs;  // Crc32c of each block of the bytes.
};

// Files of spilled objects. Blocking; called on the disk thread only, but for BytesWritten.
class SpillStorage {
 public:
  virtual ~SpillStorage() = default;
  // Writes all `pieces` into new file `file` and has them on disk before it returns the record of
  // each. kResourceExhausted: the disk is full. Any other error: the disk is broken. Nothing is
  // left behind then.
  virtual absl::StatusOr<std::vector<SpillRecord>> Write(
      uint64_t file, std::span<const std::span<const std::byte>> pieces) = 0;
  // Reads the bytes of the object from `from` on into all of `to`, which ends within the object.
  // kDataLoss: the file is gone, too short, or what lies there is not what was written.
  virtual absl::Status Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) = 0;
  virtual void Remove(uint64_t file) = 0;
  // Grows as bytes reach the disk, those of an unfinished file too. Any thread.
  virtual uint64_t BytesWritten() const { return 0; }
};

struct StoreObjectInfo {
  ObjectId id;
  uint32_t attempt = 0;
  uint64_t size_bytes = 0;  // Of the payload.
  uint32_t flags = 0;
  ProcessId writer;  // Whose extent it was sealed in.
  std::vector<ObjectId> nested;
};

// What the store tells the raylet, from inside the store's calls; the raylet must not call back
// into the store.
class StoreObserver {
 public:
  virtual ~StoreObserver() = default;
  // An object is in the index from now on, and its nested references live with it.
  virtual void OnObjectSealed(const StoreObjectInfo& object) = 0;
  // It is gone from this node, and so are its nested references; `lost`: the disk lost it.
  virtual void OnObjectGone(const StoreObjectInfo& object, bool lost) = 0;
  // `process` did what no correct process does.
  virtual void OnStoreViolation(ProcessId process, const std::string& what) = 0;
};

}  // namespace sheaf
