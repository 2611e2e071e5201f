// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/whole_file.h"
#include "base/unique_fd.h"

namespace sheaf::http {
namespace {

struct End {
  const char* address;  // In network order.
  size_t bytes;
  uint16_t port;  // In network order.
};

std::optional<End> EndOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return End{reinterpret_cast<const char*>(&v4.sin_addr), 4, v4.sin_port};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return End{reinterpret_cast<const char*>(&v6.sin6_addr), 16, v6.sin6_port};
  }
  return std::nullopt;
}

// Sends one question for exactly this socket. False: the kernel does not take it.
bool SendQuestion(int fd, int family, const End& peer, const End& own) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 question;
  } message{};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  inet_diag_req_v2& question = message.question;
  question.sdiag_family = static_cast<uint8_t>(family);
  question.sdiag_protocol = IPPROTO_TCP;
  question.idiag_states = ~0u;
  question.id.idiag_sport = peer.port;
  question.id.idiag_dport = own.port;
  std::memcpy(question.id.idiag_src, peer.address, peer.bytes);
  std::memcpy(question.id.idiag_dst, own.address, own.bytes);
  question.id.idiag_cookie[0] = question.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return ::send(fd, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message));
}

// What the kernel answered; `known` is false where it could not be asked.
std::optional<uint32_t> AskKernel(int family, const End& peer, const End& own, bool& known) {
  known = false;
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd.valid()) return std::nullopt;
  const timeval bound{0, 100'000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  if (!SendQuestion(fd.get(), family, peer, own)) return std::nullopt;
  alignas(nlmsghdr) char buffer[4096];
  const ssize_t got = ::recv(fd.get(), buffer, sizeof(buffer), 0);
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) return std::nullopt;
  nlmsghdr header;
  std::memcpy(&header, buffer, sizeof(header));
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error{};
    std::memcpy(&error, buffer + NLMSG_HDRLEN,
                std::min(sizeof(error), static_cast<size_t>(got) - NLMSG_HDRLEN));
    known = error.error == -ENOENT;  // There is no such socket.
    return std::nullopt;
  }
  inet_diag_msg answer;
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      static_cast<size_t>(got) < NLMSG_HDRLEN + sizeof(answer)) {
    return std::nullopt;
  }
  std::memcpy(&answer, buffer + NLMSG_HDRLEN, sizeof(answer));
  known = true;
  // Of a connection that there is not the kernel names who listens at that address, perhaps another
  // user than the one who had it.
  if (answer.idiag_state == TCP_LISTEN) return std::nullopt;
  if (answer.idiag_inode == 0) return std::nullopt;  // Closed: the user is not its owner's.
  return answer.idiag_uid;
}

// As /proc/net/tcp prints an end: words of the address in the machine's order, then the port.
std::string TableText(const End& end) {
  std::string text;
  for (size_t i = 0; i < end.bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, end.address + i, sizeof(word));
    absl::StrAppend(&text, absl::Hex(word, absl::kZeroPad8));
  }
  absl::StrAppend(&text, ":", absl::Hex(ntohs(end.port), absl::kZeroPad4));
  for (char& c : text) c = static_cast<char>(toupper(c));
  return text;
}

}  // namespace

std::optional<uint32_t> UserInTable(std::string_view table, const sockaddr_storage& peer,
                                    const sockaddr_storage& own) {
  const std::optional<End> from = EndOf(peer), to = EndOf(own);
  if (!from || !to) return std::nullopt;
  const std::string from_text = TableText(*from), to_text = TableText(*to);
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(table.data(), table.size()), '\n')) {
    // sl local_address rem_address st queues timer retransmits uid timeout inode
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (fields.size() < 10 || fields[1] != from_text || fields[2] != to_text) continue;
    uint32_t user = 0;
    if (!absl::SimpleAtoi(fields[7], &user) || fields[9] == "0") return std::nullopt;
    return user;
  }
  return std::nullopt;
}

std::optional<uint32_t> UserOfPeer(const sockaddr_storage& peer, const sockaddr_storage& own) {
  const std::optional<End> from = EndOf(peer), to = EndOf(own);
  if (!from || !to || from->bytes != to->bytes) return std::nullopt;
  bool known = false;
  const std::optional<uint32_t> user = AskKernel(peer.ss_family, *from, *to, known);
  if (known) return user;
  const std::optional<std::string> table =
      WholeFile(peer.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  return table ? UserInTable(*table, peer, own) : std::nullopt;
}

}  // namespace sheaf::http
