// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/service/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace sheaf::cli {
namespace {

constexpr timeval kPatience{2, 0};  // While the service manager has much to read.

int MakeSocket(const std::string& path) {
  if (path.empty()) return -1;
  const int made = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made >= 0) setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  return made;
}

}  // namespace

ServiceNotifier::ServiceNotifier(ServiceManager manager)
    : manager_(std::move(manager)), socket_(MakeSocket(manager_.socket)) {}

void ServiceNotifier::Ready(const std::string& status) {
  status_ = status;
  Send(absl::StrCat("READY=1\nSTATUS=", status_));
}

void ServiceNotifier::Look(const absl::Status& health, Nanos now) {
  if (health.ok() != well_) {
    well_ = health.ok();
    Send(absl::StrCat("STATUS=", well_ ? status_ : std::string(health.message())));
  }
  if (manager_.watchdog_period == 0 || !well_) return;
  if (last_fed_ != 0 && now - last_fed_ < manager_.watchdog_period / 3) return;
  last_fed_ = now;
  Send("WATCHDOG=1", MSG_DONTWAIT);  // It comes again.
}

void ServiceNotifier::Stopping() { Send("STOPPING=1"); }

void ServiceNotifier::Send(std::string_view text, int flags) {
  if (manager_.socket.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = manager_.socket;
  bool sent = false;
  int error = ENAMETOOLONG;
  if (path.size() < sizeof(address.sun_path)) {
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';  // An abstract one.
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    sent = ::sendto(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | flags,
                    reinterpret_cast<const sockaddr*>(&address), bytes) >= 0;
    error = errno;
  }
  if (sent || std::exchange(failed_, true)) return;
  Log(LogLevel::kWarning, "the service manager cannot be told of this node: NOTIFY_SOCKET='", path,
      "': ", std::strerror(error));
}

}  // namespace sheaf::cli
