// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the links begin: their server, their port, and who takes what comes to it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rpc/grpc_links_parts.h"
#include "rpc/security/certificates.h"

namespace sheaf {

// Hands gRPC's calls to the links.
class GrpcLinks::Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(GrpcLinks* links) : links_(links) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kLinkMethod) return links_->AcceptStream(context);
    return CallbackGenericService::CreateReactor(context);
  }

 private:
  GrpcLinks* const links_;
};

absl::StatusOr<std::unique_ptr<Links>> Links::Start(LinksOptions options) {
  PrepareGrpc();
  auto links = std::make_unique<GrpcLinks>(std::move(options));
  SHEAF_RETURN_IF_ERROR(links->Listen());
  return links;
}

GrpcLinks::GrpcLinks(LinksOptions options)
    : options_(std::move(options)),
      certificates_(options_.credentials.has_certificates()
                        ? std::make_unique<GrpcCertificates>(options_.credentials)
                        : nullptr),
      incarnation_(EntropySeed()),
      gate_(std::make_shared<Gate>()) {
  gate_->links = this;
  const Nanos period = std::clamp(std::min(options_.ping_period, options_.silence_limit) / 8,
                                  5 * kMillisecond, 25 * kMillisecond);
  last_tick_ = MonotonicNow();
  if (certificates_ != nullptr) {
    expires_ = ExpiryOf(options_.credentials.authority_pem, options_.credentials.certificate_pem)
                   .value_or(0);
    figures_.certificates_expire = expires_;
  }
  executor_ = std::make_unique<ThreadExecutor>(
      ThreadExecutor::Options{"sheaf links", period, [this] { Tick(); }});
}

GrpcLinks::~GrpcLinks() { Stop(); }

absl::Status GrpcLinks::Listen() {
  if (options_.version.size() > kMaxVersionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a version of more than ", kMaxVersionBytes, " bytes: ", options_.version));
  }
  if (certificates_ != nullptr) {
    SHEAF_ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> tls,
                           TlsContext::Make(options_.credentials));
    const MutexLock lock(mutex_);
    block_tls_ = std::move(tls);
  }
  if (options_.listen_address.empty()) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(options_.listen_address));
  if (!address.is_loopback() && !options_.credentials.has_token() &&
      !options_.credentials.has_certificates()) {
    return absl::FailedPreconditionError(
        absl::StrCat("will not listen on ", address.ToString(),
                     ", which other machines can reach, without a token or certificates; give one "
                     "of them, or listen on 127.0.0.1"));
  }
  service_ = std::make_unique<Service>(this);
  GrpcListener::Limits limits;
  limits.silence_limit = options_.silence_limit;
  SHEAF_ASSIGN_OR_RETURN(listener_, GrpcListener::Listen(&address, limits));
  block_service_ = MakeBlockService();
  ServerOptions server;
  server.certificates = certificates_.get();
  server.silence_limit = options_.silence_limit;
  server.idle_limit = options_.idle_limit;
  server.take_block_connection = [this](UniqueFd fd, const std::string& peer) {
    block_service_->Accept(std::move(fd), peer);
  };
  SHEAF_ASSIGN_OR_RETURN(server_, StartServer(*listener_, server, service_.get()));
  address_ = address.ToString();
  if (!options_.advertise_address.empty()) {
    SHEAF_ASSIGN_OR_RETURN(ListenAddress advertised,
                           ParseListenAddress(options_.advertise_address));
    if (advertised.port == 0) advertised.port = address.port;
    address_ = advertised.ToString();
  }
  return absl::OkStatus();
}

}  // namespace sheaf
