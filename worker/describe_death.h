// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "proto/common.pb.h"

namespace sheaf {

// The words for a dead process, shared by tasks and actors: "was killed by signal 9 (SIGKILL)",
// with evidence.
std::string DescribeDeath(const proto::Death& death);

}  // namespace sheaf
