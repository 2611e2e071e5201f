// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf cert init: makes the certificates of a cluster.
#pragma once

#include <string>
#include <vector>

namespace sheaf::cli {

struct CertOptions {
  std::string directory;
  std::vector<std::string> hosts;  // Names or addresses of nodes, beside localhost.
};

int RunCertInit(const CertOptions& options);

}  // namespace sheaf::cli
