// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/catch/run.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>  // Of version 3, which has its session apart.
#endif

namespace sheaf {

int RunTests(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace sheaf
