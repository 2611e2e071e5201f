// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/arena_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "object_store/layout.h"

namespace sheaf {
namespace {

// The choice in brackets: "always within_size [advise] never".
std::string ChosenIn(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('[');
  const size_t close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return line.substr(open + 1, close - open - 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SegmentArena>> SegmentArena::Make(Options options) {
  const ArenaShape shape = ArenaShape::For(options.capacity_bytes);
  SHEAF_ASSIGN_OR_RETURN(UniqueFd fd, MakeSegment("sheaf-arena", shape.arena_bytes));
  SHEAF_ASSIGN_OR_RETURN(Mapping mapping,
                         Mapping::Map(fd.get(), 0, shape.arena_bytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(mapping.DontFork());
  return std::unique_ptr<SegmentArena>(
      new SegmentArena(std::move(options), std::move(fd), std::move(mapping)));
}

SegmentArena::SegmentArena(Options options, UniqueFd fd, Mapping mapping)
    : options_(std::move(options)), fd_(std::move(fd)), mapping_(std::move(mapping)) {
  const std::string mode = ChosenIn("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  huge_on_request_ = mode == "advise" || mode == "within_size";
  huge_pages_ = huge_on_request_ || mode == "always" || mode == "force";
  if (huge_on_request_) mapping_.AdviseHugePages();
}

absl::Status SegmentArena::Populate(uint64_t offset, uint64_t bytes) {
  const MachineMemory memory = options_.memory();
  const int64_t need = static_cast<int64_t>(bytes + options_.reserve_bytes);
  if (memory.limit_bytes != 0 && memory.available_bytes < need) {
    return absl::ResourceExhaustedError(
        absl::StrCat("only ", memory.available_bytes, " bytes of memory are left, want ", need));
  }
  if (huge_on_request_) {
    const absl::Status populated = mapping_.Populate(offset, bytes);
    if (!absl::IsUnimplemented(populated)) return populated;
  }
  // Allocates pages without entering them into this process's page table, in a third of the time
  // that MADV_POPULATE_WRITE takes; they are zeroed where they are first used.
  int result;
  do {
    result = fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes,
                     " bytes of the arena: ", absl::ErrnoToStatus(errno, "").ToString()));
  }
  return absl::OkStatus();
}

void SegmentArena::Discard(uint64_t offset, uint64_t bytes) {
  // Refused only by kernels without it; then the memory just stays.
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes));
}

uint64_t DefaultStoreCapacity(const MachineMemory& memory) {
  return std::max<uint64_t>(64 << 20, static_cast<uint64_t>(memory.limit_bytes) / 10 * 3);
}

}  // namespace sheaf
