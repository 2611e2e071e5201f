// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The groups of a name follow each other in epochs: what this process knows of them, and whether it
// is still the process that formed a group.
#pragma once

#include <cstdint>
#include <string>

namespace sheaf {

// `at_least`, or one more than the largest epoch of `name` that this process was part of.
uint64_t NextEpoch(const std::string& name, uint64_t at_least);
void RememberEpoch(const std::string& name, uint64_t epoch);

// How many forks lie between the first process of this program and this one: groups belong to the
// process that formed them.
uint64_t Forks();

}  // namespace sheaf
