// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Finds what SHEAF_REMOTE, SHEAF_ACTOR and RetryOn registered, by the key that other processes
// send.
#pragma once

#include <string>
#include <string_view>

#include "sheaf/internal/registry.h"
#include "sheaf/options.h"

namespace sheaf::inline v1::internal {

// nullptr: no such function here.
const FunctionRecord* FindFunction(std::string_view key);
// For calls of other languages, which know names only: the one of this kind and name
// ("app::Square", "app::Counter::Add"; constructors by their class or factory) with so many
// parameters. Throws NotFoundError, or InvalidArgumentError when there is none with that number, or
// several.
const FunctionRecord& FindFunctionNamed(std::string_view name, FunctionRecord::Kind kind,
                                        size_t parameters);
const RetryRule* FindRetryRule(std::string_view key);
// What was registered twice with one key, in words; empty: nothing.
std::string RegistrationErrors();

}  // namespace sheaf::inline v1::internal
