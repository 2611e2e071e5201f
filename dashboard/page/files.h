// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The files of the page, as they were built into this program (dashboard/dist).
#pragma once

#include <array>
#include <string_view>

namespace sheaf::dashboard {

struct PageFile {
  std::string_view name;  // "app.js".
  const char* content_type;
  std::string_view bytes;
};

// The page itself comes first.
std::array<PageFile, 4> PageFiles();

}  // namespace sheaf::dashboard
