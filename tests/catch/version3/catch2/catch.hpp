// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Catch2 3 under the header and the names of Catch2 2, which is what Debian 12 and Ubuntu 22.04 have. In the path of
// includes only where version 3 was found.
#pragma once

#include <string>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_tostring.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Approx;

namespace Catch {

using Matchers::Equals;
using Matchers::StartsWith;

inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }

}  // namespace Catch
