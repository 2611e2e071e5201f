// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What links do about certificates: whose they accept, when theirs expire, and new ones.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/grpc_links_parts.h"
#include "rpc/security/certificates.h"

namespace sheaf {
namespace {

constexpr Nanos kDay = 24 * 3600 * kSecond;
constexpr Nanos kWarnBefore = 30 * kDay;

}  // namespace

// Links that stand go on when the certificates have expired, and none comes up again: all nodes
// lose each other one by one. So this is said long before, each day. Under the lock.
void GrpcLinks::CheckExpiry(Nanos now) {
  next_expiry_check_ = now + kDay;
  const int64_t left = expires_ - UnixNow() / kSecond;
  if (left > kWarnBefore / kSecond) return;
  Log(left > 0 ? LogLevel::kWarning : LogLevel::kError, "the certificates of this node ",
      left > 0 ? absl::StrCat("expire in ", left / (kDay / kSecond), " days")
               : std::string("have expired"),
      ": no link comes up after that; put new ones in their place on all nodes");
}

absl::Status GrpcLinks::SetCertificates(const Credentials& next) {
  if (certificates_ == nullptr || !next.has_certificates()) {
    return absl::FailedPreconditionError(
        "links begin with certificates or have none: start the process anew");
  }
  SHEAF_ASSIGN_OR_RETURN(const int64_t expires, ExpiryOf(next.authority_pem, next.certificate_pem));
  SHEAF_ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> tls, TlsContext::Make(next));
  Actions actions;
  {
    const MutexLock lock(mutex_);
    certificates_->Replace(next);
    block_tls_ = std::move(tls);
    expires_ = expires;
    figures_.certificates_expire = expires;
    next_expiry_check_ = 0;
    for (const auto& [key, link] : links_) {
      link->next_dial = 0;
      link->backoff = kFirstBackoff;
    }
    actions.tick = !stopping_;
  }
  Run(actions);
  return absl::OkStatus();
}

// An authority may have signed certificates for others than the nodes of this cluster.
absl::Status GrpcLinks::CheckPeerName(const grpc::AuthContext* peer) const {
  const std::string& wanted = options_.credentials.peer_name;
  if (certificates_ == nullptr || wanted.empty()) return absl::OkStatus();
  const std::vector<std::string> names =
      peer != nullptr ? PeerNames(*peer) : std::vector<std::string>();
  if (NamesInclude(names, wanted)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("the other end's certificate carries the names ",
                                                 absl::StrJoin(names, ", "), ", and not ", wanted));
}

}  // namespace sheaf
