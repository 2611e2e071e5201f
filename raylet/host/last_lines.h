// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The end of a text file, for error messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sheaf {

// The last `count` lines of `path`, of its last 16 KiB at most; each cut to 500 bytes and made
// valid UTF-8, as protobuf asks of strings. Empty when it cannot be read.
std::vector<std::string> LastLines(const std::string& path, size_t count);

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
std::string ToValidUtf8(std::string_view text);

}  // namespace sheaf
