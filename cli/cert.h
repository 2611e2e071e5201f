// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf cert init, sheaf cert node: make the certificates of a cluster.
#pragma once

#include <string>
#include <vector>

namespace sheaf::cli {

struct CertOptions {
  std::string directory;
  std::string authority;           // Of RunCertNode: where ca.pem and ca.key are.
  std::vector<std::string> hosts;  // Names or addresses of nodes, beside localhost.
};

int RunCertInit(const CertOptions& options);
int RunCertNode(const CertOptions& options);

}  // namespace sheaf::cli
