// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), as iSCSI and ext4 use it: by the processor's instruction where there is
// one.
#pragma once

#include <cstdint>
#include <string_view>

namespace sheaf {

// Of `bytes`, continuing from the `crc` of the bytes before them; 0 begins.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);
// The same while `bytes` are copied to `to`, so that they come from memory once.
uint32_t CopyWithCrc32c(char* to, std::string_view bytes, uint32_t crc = 0);

}  // namespace sheaf
