// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/cert.h"

#include <cstdio>

#include "cli/query.h"
#include "dashboard/tables/cells.h"
#include "rpc/security/credentials.h"

namespace sheaf::cli {

namespace {

int ComplainOfFiles(const absl::Status& status) {
  const int code = Complain(status);
  return code == kNoNode ? kFailed : code;  // No node is asked.
}

}  // namespace

int RunCertInit(const CertOptions& options) {
  if (absl::Status made = MakeCertificateSet(options.directory, options.hosts); !made.ok()) {
    return ComplainOfFiles(made);
  }
  const std::string directory = Printable(options.directory);
  std::printf(
      "Made an authority and a certificate for nodes in %s, good for ten years:\n"
      "  ca.pem, node.pem, node.key   what every node needs: copy them there, node.key unreadable "
      "to others\n"
      "  ca.key                       signs certificates of further nodes: keep it apart\n\n"
      "Next: sheaf start --head --host ADDRESS --tls-dir %s\n"
      "ADDRESS is this machine's, as the other nodes reach it.\n",
      directory.c_str(), directory.c_str());
  return kDone;
}

int RunCertNode(const CertOptions& options) {
  const absl::Status made =
      MakeNodeCertificate(options.authority, options.directory, options.hosts);
  if (!made.ok()) return ComplainOfFiles(made);
  const std::string directory = Printable(options.directory);
  std::printf(
      "Made a certificate for nodes in %s, good for ten years, by the authority in %s.\n"
      "Next: copy ca.pem, node.pem and node.key into the --tls-dir of each node; one that runs "
      "uses them within seconds.\n",
      directory.c_str(), Printable(options.authority).c_str());
  return kDone;
}

}  // namespace sheaf::cli
