// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/catch/run.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

namespace sheaf {

int RunTests(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace sheaf
