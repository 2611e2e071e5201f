// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// X.509 in PEM, from OpenSSL. `authority_pem` may hold several authorities; `certificate_pem` holds
// a node's certificate, and behind it those between it and its authority, if there are any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX and X509.
struct x509_st;

namespace sheaf {

// kInvalidArgument: one of them is no PEM, the key is not the certificate's, no authority signed
// it, the time of one of the chain is over or has not begun, it is not for servers and clients
// both, or it does not carry `peer_name` (empty: any).
absl::Status CheckCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                               const std::string& key_pem, const std::string& peer_name);

// Whether `wanted` is one of the names of a certificate: upper and lower case are the same.
bool NamesInclude(const std::vector<std::string>& names, const std::string& wanted);

// Until when the node's certificate and those that vouch for it are good, in seconds since 1970.
// kInvalidArgument: no PEM, or no authority signed it.
absl::StatusOr<int64_t> ExpiryOf(const std::string& authority_pem,
                                 const std::string& certificate_pem);

// The same of all certificates in one file, whoever vouches for them.
absl::StatusOr<int64_t> ExpiryOf(const std::string& certificates_pem);

// What `certificate` carries: its common name, and the names and URIs among its alternative names.
std::vector<std::string> NamesOf(x509_st* certificate);

// Gives `context` what it shows, and whom it trusts. False: OpenSSL cannot use one of them.
bool UseCertificates(const std::string& authority_pem, const std::string& certificate_pem,
                     const std::string& key_pem, ssl_ctx_st* context);

// As MakeNodeCertificate of credentials.h, by the authority of the first certificate in
// `authority_pem`, whose key is `authority_key`.
absl::Status MakeNodeCertificateBy(const std::string& authority_pem,
                                   const std::string& authority_key, const std::string& directory,
                                   const std::vector<std::string>& hosts, int64_t seconds_valid);

}  // namespace sheaf
