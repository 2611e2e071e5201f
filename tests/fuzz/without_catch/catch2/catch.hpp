// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Stands in for Catch in fuzz programs, which use the fixtures of the unit tests without a running test: what is required
// there is checked here, and a failure is a finding.
#pragma once

#include "tests/fuzz/fuzz_target.h"

#define REQUIRE(...) FUZZ_CHECK((__VA_ARGS__))
#define REQUIRE_FALSE(...) FUZZ_CHECK(!(__VA_ARGS__))
#define CHECK(...) FUZZ_CHECK((__VA_ARGS__))
#define CHECK_FALSE(...) FUZZ_CHECK(!(__VA_ARGS__))
#define FAIL(...) std::abort()
#define INFO(...) static_cast<void>(0)
#define CAPTURE(...) static_cast<void>(0)
