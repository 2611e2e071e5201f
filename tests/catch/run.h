// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Runs the Catch2 tests of a program that has a main of its own. Catch2 itself is compiled once, in
// run.cc.
#pragma once

namespace sheaf {

// The exit status of the program.
int RunTests(int argc, char** argv);

}  // namespace sheaf
