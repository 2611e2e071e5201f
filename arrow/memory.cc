// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf::arrow {

absl::StatusOr<std::shared_ptr<uint8_t>> Memory::AllocateZeros(int64_t size_bytes) {
  SHEAF_ASSIGN_OR_RETURN(std::shared_ptr<uint8_t> bytes, Allocate(size_bytes));
  std::memset(bytes.get(), 0, static_cast<size_t>(size_bytes));
  return bytes;
}

absl::StatusOr<std::shared_ptr<uint8_t>> HeapMemory::Allocate(int64_t size_bytes) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kHugePage = 2 << 20;
  constexpr int64_t kMost = int64_t{1} << 46;
  if (size_bytes >= 0 && size_bytes < kMost) {
    // A fault for each 4 KiB costs more than what most kernels here do with them.
    const bool huge = size_bytes >= 2 * kHugePage;
    const int64_t unit = huge ? kHugePage : kLine;
    const auto whole = static_cast<size_t>((size_bytes / unit + 1) * unit);
    auto* const bytes = static_cast<uint8_t*>(std::aligned_alloc(static_cast<size_t>(unit), whole));
    if (bytes != nullptr) {
      if (huge) madvise(bytes, whole, MADV_HUGEPAGE);  // It may be refused, which is no harm.
      return std::shared_ptr<uint8_t>(bytes, std::free);
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a column needs ", size_bytes, " bytes, which this process does not get"));
}

}  // namespace sheaf::arrow
