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
const RetryRule* FindRetryRule(std::string_view key);
// What was registered twice with one key, in words; empty: nothing.
std::string RegistrationErrors();

}  // namespace sheaf::inline v1::internal
