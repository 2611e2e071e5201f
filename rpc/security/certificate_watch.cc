// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/certificate_watch.h"

#include <utility>

#include "absl/status/statusor.h"
#include "base/log.h"

namespace sheaf {

CertificateWatch::CertificateWatch(std::string directory, Credentials in_use, OnNew on_new,
                                   Nanos period)
    : directory_(std::move(directory)), on_new_(std::move(on_new)), in_use_(std::move(in_use)) {
  thread_ = std::make_unique<ThreadExecutor>(
      ThreadExecutor::Options{"certificates", period, [this] { Tick(); }});
}

CertificateWatch::Marks CertificateWatch::Look() const {
  Marks marks;
  auto mark = marks.begin();
  for (const char* name : {"/ca.pem", "/node.pem", "/node.key"}) {
    struct stat info{};
    if (stat((directory_ + name).c_str(), &info) == 0) {
      *mark = {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
               info.st_ctim.tv_sec * kSecond + info.st_ctim.tv_nsec};
    }
    ++mark;
  }
  return marks;
}

void CertificateWatch::Tick() {
  const Marks now = Look();
  const bool settled = std::exchange(seen_, now) == now;
  if (!settled || now == read_) return;
  const absl::StatusOr<Credentials> next = LoadCertificates(directory_, in_use_.peer_name);
  if (Look() != now) return;  // They are being replaced just now.
  read_ = now;
  if (next.ok() && next->authority_pem == in_use_.authority_pem &&
      next->certificate_pem == in_use_.certificate_pem && next->key_pem == in_use_.key_pem) {
    return;
  }
  const absl::Status taken = next.ok() ? on_new_(*next) : next.status();
  if (!taken.ok()) {
    Log(LogLevel::kError, "the certificates in ", directory_,
        " were changed and cannot be used, so those from before stay in use: ", taken.message());
    return;
  }
  in_use_ = *next;
  Log(LogLevel::kInfo, "new certificates in ", directory_,
      ": connections that are made from now on use them");
}

}  // namespace sheaf
