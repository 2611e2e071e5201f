// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Compression as files with the ending .gz have it.
#pragma once

#include <string>
#include <string_view>

namespace sheaf::dashboard {

std::string Gzip(std::string_view bytes);

}  // namespace sheaf::dashboard
