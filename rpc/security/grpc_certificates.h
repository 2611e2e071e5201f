// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The certificates of this process as gRPC asks for them, at each TLS handshake: those that are
// replaced count for the connections that are made from then on, dialled and accepted ones, and
// connections that stand know nothing of it. Any thread.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rpc/security/credentials.h"

namespace sheaf {

class GrpcCertificates {
 public:
  explicit GrpcCertificates(const Credentials& first);
  ~GrpcCertificates();
  GrpcCertificates(const GrpcCertificates&) = delete;
  GrpcCertificates& operator=(const GrpcCertificates&) = delete;

  void Replace(const Credentials& next);
  uint64_t version() const;  // Grows with each Replace.

  // Of a channel: the certificates of now, for all its connections. The server's name is checked.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel() const;
  // Of the one server of this process: each connection has the certificates of its time. Clients
  // must have one. The server may outlive this object; handshakes fail then.
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;

 private:
  class Server;
  friend class Server;
  const uint64_t id_;  // By which a server finds this.
  mutable Mutex mutex_;
  std::string authority_pem_ ABSL_GUARDED_BY(mutex_);
  std::string certificate_pem_ ABSL_GUARDED_BY(mutex_);
  std::string key_pem_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t served_ ABSL_GUARDED_BY(mutex_) = 0;  // The version that the server has.
};

// The names that the certificate of a call's peer carries: its common name and alternative names.
std::vector<std::string> PeerNames(const grpc::AuthContext& peer);

}  // namespace sheaf
