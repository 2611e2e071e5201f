// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What systemd wants to hear of a service with Type=notify and a watchdog: datagrams to the socket
// that it names. Anything else that starts a node names none, and nothing is sent.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/unique_fd.h"

namespace sheaf::cli {

// For one thread. A datagram that cannot be sent is logged, the first time.
class ServiceNotifier {
 public:
  explicit ServiceNotifier(ServiceManager manager);

  // The node takes work; `status` is for people (systemctl status), one line.
  void Ready(const std::string& status);
  // To be called each second or so. While `health` is OK the watchdog is fed, three times a period;
  // what it says otherwise is told once, and the watchdog starves.
  void Look(const absl::Status& health, Nanos now);
  void Stopping();

 private:
  // Without MSG_DONTWAIT it waits for room, up to two seconds.
  void Send(std::string_view text, int flags = 0);

  const ServiceManager manager_;
  const UniqueFd socket_;
  std::string status_;
  Nanos last_fed_ = 0;
  bool well_ = true;
  bool failed_ = false;
};

}  // namespace sheaf::cli
