// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/route_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace sheaf {

absl::StatusOr<std::string> AddressOnTheWayTo(const ListenAddress& there) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(there.host.c_str(), std::to_string(there.port).c_str(), &wanted, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("'", there.host, "' is no numeric address: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  int last_error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    // Of a datagram socket this only looks up the route.
    const UniqueFd socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    char text[NI_MAXHOST] = "";
    if (socket.valid() && ::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
    last_error = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("no way to ", there.ToString(), ": ", std::strerror(last_error)));
}

}  // namespace sheaf
