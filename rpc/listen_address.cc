// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/listen_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

bool IsName(std::string_view host) {
  return !host.empty() && host.size() <= 253 &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

bool ListenAddress::is_loopback() const {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return host == "localhost";
}

bool ListenAddress::is_unspecified() const {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6) != 0;
}

std::string ListenAddress::ToString() const {
  return host.find(':') != std::string::npos ? absl::StrCat("[", host, "]:", port)
                                             : absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("'", absl::string_view(text.data(), text.size()),
                   "': want HOST:PORT, an IPv6 address in brackets, PORT up to 65535"));
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  ListenAddress out;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  uint32_t number = 0;
  const bool digits =
      !port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!digits || !absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &number) ||
      number > 65535) {
    return wrong;
  }
  out.port = static_cast<uint16_t>(number);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    out.host = host.substr(1, host.size() - 2);
    in6_addr v6;
    if (inet_pton(AF_INET6, out.host.c_str(), &v6) != 1) return wrong;
    return out;
  }
  if (!IsName(host)) return wrong;
  out.host = host;
  return out;
}

}  // namespace sheaf
