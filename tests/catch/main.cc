// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The main of every test program that has none of its own.
#include "tests/catch/run.h"

int main(int argc, char** argv) { return sheaf::RunTests(argc, argv); }
