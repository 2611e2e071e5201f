// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the daemons of a cluster know each other: by a 256-bit token that never travels (challenge
// and response, bound to cluster, roles and nonces), by certificates (mutual TLS), or both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

struct Credentials {
  std::string token;            // 32 bytes, or empty: none.
  std::string certificate_pem;  // Of this node; with `key_pem` and `authority_pem`, or all empty.
  std::string key_pem;
  std::string authority_pem;  // Peers must be signed by it, or by one of those in it.
  std::string peer_name;      // A name that the certificate of each peer must carry; empty: any.

  bool has_token() const { return !token.empty(); }
  bool has_certificates() const { return !certificate_pem.empty(); }
};

// The 32 bytes that 64 hexadecimal digits (white space around them) name.
// kInvalidArgument: anything else; the text does not show it.
absl::StatusOr<std::string> ParseToken(std::string_view hexadecimal);

// That of a cluster whose secret is a text of any form, as Kubernetes' operators hand them out: 32
// bytes, of which nobody gets back to the text.
std::string TokenOf(std::string_view secret);

// What stands in the file `path`, which no other user may read: it is this user's and 0600 at most,
// or root's and 0640, as a Secret that Kubernetes mounts for a group is. kPermissionDenied: it is
// not so. kInvalidArgument: no file, or a large one. Others: the file system's.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// The token in the file `path`, which is made with a new token, mode 0600, if there is none.
// kPermissionDenied: somebody else's file, or one that others can read. kInvalidArgument: no token
// in it. Others: the file system's.
absl::StatusOr<std::string> LoadOrMakeToken(const std::string& path);
// The same, but kNotFound where there is no file.
absl::StatusOr<std::string> LoadToken(const std::string& path);

// ca.pem, node.pem and node.key of `directory`, without a token. kPermissionDenied: others can read
// the key. kInvalidArgument: not PEM, the key is not the certificate's, no authority of ca.pem
// signed it, it has expired or is not good yet, is not for servers and clients both, or does not
// carry `peer_name`. Others: the file system's.
absl::StatusOr<Credentials> LoadCertificates(const std::string& directory,
                                             const std::string& peer_name = "");

inline constexpr int64_t kTenYears = int64_t{10} * 365 * 24 * 3600;  // Seconds.

// Makes `directory` (0700) with an authority (ca.pem, ca.key) and a certificate for a node
// (node.pem, node.key; keys 0600) that is reached by `hosts`, names or addresses, beside localhost
// and 127.0.0.1. All nodes may share it; ca.key is needed for others only. Both are good for
// `seconds_valid`. kAlreadyExists: one of the files is there. kInvalidArgument: a host that is
// none.
absl::Status MakeCertificateSet(const std::string& directory, const std::vector<std::string>& hosts,
                                int64_t seconds_valid = kTenYears);

// Makes `directory` with another certificate for a node, and ca.pem, by the authority whose ca.pem
// and ca.key are in `authority`. kPermissionDenied: others can read that key. kInvalidArgument: it
// is not that authority's, or a host that is none. kAlreadyExists: as above.
absl::Status MakeNodeCertificate(const std::string& authority, const std::string& directory,
                                 const std::vector<std::string>& hosts,
                                 int64_t seconds_valid = kTenYears);

}  // namespace sheaf
