// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What makes two demands one for who adds machines: the same resources and labels. Pure.
#pragma once

#include <string>

#include "proto/raylet.pb.h"

namespace sheaf {

// Shapes of an answer about demand, at most.
inline constexpr int kMaxShapes = 1000;

// Equal for rows of one shape, whatever order their resources have.
std::string ShapeOf(const proto::DemandRow& row);

}  // namespace sheaf
