// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/grpc_certificates.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <map>

namespace sheaf {
namespace {

// gRPC keeps what it asks with for as long as its last handshake, which nobody is told the end of:
// so that is a number, and whose number it was is forgotten in time.
struct Living {
  Mutex mutex;  // Taken before that of the certificates.
  std::map<uint64_t, GrpcCertificates*> by_id ABSL_GUARDED_BY(mutex);
  uint64_t last_id ABSL_GUARDED_BY(mutex) = 0;
};
Living& AllLiving() {
  static Living* const living = new Living;
  return *living;
}

uint64_t Enter(GrpcCertificates* certificates) {
  Living& living = AllLiving();
  const MutexLock lock(living.mutex);
  living.by_id[++living.last_id] = certificates;
  return living.last_id;
}

}  // namespace

// What grpc::SslServerCredentials makes, but for where the certificates come from.
class GrpcCertificates::Server final : public grpc::ServerCredentials {
 public:
  explicit Server(uint64_t id)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Ask,
                reinterpret_cast<void*>(id)))) {}
  ~Server() override { grpc_server_credentials_release(credentials_); }
  // Nothing here looks at the metadata of calls.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls this before each handshake.
  static grpc_ssl_certificate_config_reload_status Ask(
      void* id, grpc_ssl_server_certificate_config** config) {
    Living& living = AllLiving();
    const MutexLock lock(living.mutex);
    const auto found = living.by_id.find(reinterpret_cast<uint64_t>(id));
    if (found == living.by_id.end()) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    GrpcCertificates& mine = *found->second;
    const MutexLock of_mine(mine.mutex_);
    if (mine.served_ == mine.version_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{mine.key_pem_.c_str(), mine.certificate_pem_.c_str()};
    *config = grpc_ssl_server_certificate_config_create(mine.authority_pem_.c_str(), &pair, 1);
    mine.served_ = mine.version_;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  grpc_server_credentials* const credentials_;
};

GrpcCertificates::GrpcCertificates(const Credentials& first)
    : id_(Enter(this)),
      authority_pem_(first.authority_pem),
      certificate_pem_(first.certificate_pem),
      key_pem_(first.key_pem) {}

GrpcCertificates::~GrpcCertificates() {
  Living& living = AllLiving();
  const MutexLock lock(living.mutex);
  living.by_id.erase(id_);
}

void GrpcCertificates::Replace(const Credentials& next) {
  const MutexLock lock(mutex_);
  authority_pem_ = next.authority_pem;
  certificate_pem_ = next.certificate_pem;
  key_pem_ = next.key_pem;
  ++version_;
}

uint64_t GrpcCertificates::version() const {
  const MutexLock lock(mutex_);
  return version_;
}

std::shared_ptr<grpc::ChannelCredentials> GrpcCertificates::ForChannel() const {
  const MutexLock lock(mutex_);
  return grpc::SslCredentials({authority_pem_, key_pem_, certificate_pem_});
}

std::shared_ptr<grpc::ServerCredentials> GrpcCertificates::ForServer() const {
  return std::make_shared<Server>(id_);
}

std::vector<std::string> PeerNames(const grpc::AuthContext& peer) {
  std::vector<std::string> out;
  for (const char* property : {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : peer.FindPropertyValues(property)) {
      out.emplace_back(name.data(), name.size());
    }
  }
  return out;
}

}  // namespace sheaf
