// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the maker of an id says of it to its raylet, beside words, when it is asked why (StateQuery::WHY): the
// keys of `counts` in its answer.
#pragma once

#include <string_view>

namespace sheaf::telemetry {

// `count` is the key of the demand for the lease that it waits for: the raylet adds the reason.
inline constexpr std::string_view kWhyLease = "lease";
// It was made, and its maker has no more of it. It has ended, unless it is a detached actor, which
// its maker does not manage.
inline constexpr std::string_view kWhyMade = "made";

}  // namespace sheaf::telemetry
