// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A profile as a picture: each function as wide as the time in it and in what it called, its callers
// below it.
#pragma once

#include <string>

#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// SVG, without scripts; a pointer on a function shows its name, file and time. What would be narrower
// than a third of a pixel is left out.
std::string FlameGraphSvg(const proto::StateAnswer& answer);

}  // namespace sheaf::dashboard
