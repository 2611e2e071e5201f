// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How large messages between processes may be.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf {

// Of a frame's body, between the processes of a node and on links; a longer one goes nowhere, with
// a line in the log. What users can make larger is measured before it is sent, and passed by the
// object store or refused with a typed error; with kRoomForHeads less, for what frames gain on
// their way (RelayHead, numbers of requests).
inline constexpr size_t kMaxBodyBytes = 64 * 1024 * 1024;
inline constexpr size_t kRoomForHeads = 64 * 1024;
// Rows of an answer to kStateQuery, whatever limit it names. What is left out is said.
inline constexpr uint32_t kMaxStateRows = 100'000;
inline constexpr size_t kMaxStateBytes = 32 * 1024 * 1024;

}  // namespace sheaf
