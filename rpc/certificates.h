// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// X.509 in PEM, from OpenSSL.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// kInvalidArgument: one of them is no PEM, the key is not the certificate's, no authority signed it,
// or its time is over or has not begun.
absl::Status CheckCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                               const std::string& key_pem);

// Until when both are good, in seconds since 1970. kInvalidArgument: one is no certificate in PEM.
absl::StatusOr<int64_t> ExpiryOf(const std::string& authority_pem,
                                 const std::string& certificate_pem);

}  // namespace sheaf
