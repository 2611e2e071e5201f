// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Pieces of options, as plain Python values checked by sheaf.options, into protocol messages. They
// throw ValueError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <vector>

#include "worker/runtime.h"

namespace sheaf::python {

using Amounts = std::map<std::string, double>;

// Names with amount 0 are left out.
void FillAmounts(const Amounts& amounts, proto::Resources* out);
Amounts AmountsOf(const proto::Resources& resources);
// (key, values, negated) each.
void FillSelector(nanobind::handle terms, proto::LabelSelector* out);
// {"kind": "hybrid" | "spread" | "node" | "group", "node", "soft", "group", "bundle", "capture",
// "selectors"}
void FillStrategy(const nanobind::dict& strategy, proto::Strategy* out);
// Variables, and names that begin with '@': the runtime environment as its bytes.
std::string EnvironmentBytes(const std::map<std::string, std::string>& variables);

}  // namespace sheaf::python
