// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The driver that row 7 kills: this program with kSecondDriver as its first argument.
#pragma once

namespace faults {

inline constexpr char kSecondDriver[] = "--second-driver";

// Joins the node at SHEAF_ADDRESS, queues thousands of tasks, prints "running" and waits to be
// killed.
int RunSecondDriver();

}  // namespace faults
