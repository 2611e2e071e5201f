// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// X.509 in PEM, from OpenSSL.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf {

// kInvalidArgument: one of them is no PEM, the key is not the certificate's, or no authority signed
// it.
absl::Status CheckCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                               const std::string& key_pem);

}  // namespace sheaf
