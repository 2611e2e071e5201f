// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a submission may ask for.
#pragma once

#include <cstddef>
#include <string>

#include "proto/gcs.pb.h"

namespace sheaf {

inline constexpr size_t kMaxSubmissionIdBytes = 128;
inline constexpr size_t kMaxEntrypointBytes = 192 << 10;  // It travels in one question of a tool.

// For people; empty: nothing is wrong with it.
std::string WhatIsWrong(const proto::SubmitEntrypoint& request);

}  // namespace sheaf
