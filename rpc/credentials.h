// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the daemons of a cluster know each other: by a 256-bit token that never travels (challenge
// and response, bound to cluster, roles and nonces), by certificates (mutual TLS), or both.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sheaf {

struct Credentials {
  std::string token;            // 32 bytes, or empty: none.
  std::string certificate_pem;  // Of this node; with `key_pem` and `authority_pem`, or all empty.
  std::string key_pem;
  std::string authority_pem;  // Peers must be signed by it.

  bool has_token() const { return !token.empty(); }
  bool has_certificates() const { return !certificate_pem.empty(); }
};

}  // namespace sheaf
