// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whose process holds the other end of a TCP connection within this machine.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace sheaf::http {

// The user of the socket that is bound to `peer` and connected to `own`; both are the addresses of
// this end of the connection, as getpeername and getsockname give them. Nothing: the kernel does
// not say, the connection leads to another machine, or nobody holds that socket any more (the
// kernel then calls it root's). Asks by netlink, and reads /proc/net where that is not there; takes
// less than a millisecond.
std::optional<uint32_t> UserOfPeer(const sockaddr_storage& peer, const sockaddr_storage& own);

// The same from the text of /proc/net/tcp, or of tcp6, as the kernel prints it.
std::optional<uint32_t> UserInTable(std::string_view table, const sockaddr_storage& peer,
                                    const sockaddr_storage& own);

}  // namespace sheaf::http
