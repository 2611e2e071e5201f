// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// "host:port" as users write it: a name, an IPv4 address, or an IPv6 address in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

struct ListenAddress {
  std::string host;  // Without brackets.
  uint16_t port = 0;

  // Only processes of this machine can reach it.
  bool is_loopback() const;
  // 0.0.0.0 or ::, all addresses of this machine: good to listen on, nobody can dial it.
  bool is_unspecified() const;
  std::string ToString() const;
};

// kInvalidArgument: anything else.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

}  // namespace sheaf
