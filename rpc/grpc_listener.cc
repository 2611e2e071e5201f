// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/grpc_listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"
#include "rpc/blocks/block_wire.h"

namespace sheaf {
namespace {

constexpr int kBacklog = 1024;
constexpr Nanos kLookPeriod = 100 * kMillisecond;  // Between looks who has gone.
constexpr int kNoDescriptorsPause = 50;            // Milliseconds.
constexpr Nanos kFirstBytesTime = 5 * kSecond;
constexpr uint64_t kPartOfDescriptors = 8;
constexpr size_t kLeastOfOneAddress = 4;
constexpr size_t kPartOfOneAddress = 4;

// As gRPC names it, but for the brackets of IPv6, which it encodes.
std::string NameOf(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return absl::StrCat("ipv6:[", text, "]:", ntohs(v6.sin6_port));
}

std::string Plain(const std::string& peer) {
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
}

uint64_t DescriptorLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

absl::StatusOr<UniqueFd> ListenOn(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (code != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address.ToString(), ": ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1, off = 0;
    // A port that was just given back can be had again; "::" is for IPv4 too.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (each->ai_family == AF_INET6)
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd.valid() && bind(fd.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        listen(fd.get(), kBacklog) == 0)
      return fd;
    error = errno;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", std::strerror(error)));
}

}  // namespace

std::string AddressOf(const std::string& peer) { return Plain(peer.substr(0, peer.rfind(':'))); }

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Listen(ListenAddress* address,
                                                                   const Limits& limits) {
  absl::StatusOr<UniqueFd> fd = ListenOn(*address);
  if (!fd.ok()) return fd.status();
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd->get(), reinterpret_cast<sockaddr*>(&bound), &size);
  address->port =
      ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                       : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return std::unique_ptr<GrpcListener>(new GrpcListener(*std::move(fd), limits));
}

GrpcListener::GrpcListener(UniqueFd fd, const Limits& limits)
    : fd_(std::move(fd)), limits_(limits) {}

void GrpcListener::Start(std::unique_ptr<Acceptor> acceptor, TakeBlockConnection take) {
  acceptor_ = std::move(acceptor);
  take_block_connection_ = std::move(take);
  thread_ = std::make_unique<ThreadExecutor>("links accept");
  thread_->Post([this] { Run(); });
}

void GrpcListener::Stop() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  shutdown(fd_.get(), SHUT_RDWR);  // Ends the wait.
  if (thread_ != nullptr) thread_->Stop();
  acceptor_ = nullptr;
}

uint64_t GrpcListener::refused() const {
  const MutexLock lock(mutex_);
  return refused_;
}

void GrpcListener::Run() {
  while (true) {
    std::vector<pollfd> entries{{fd_.get(), POLLIN, 0}};
    for (const Silent& silent : silent_) entries.push_back({silent.fd.get(), POLLIN, 0});
    int wait = -1;
    if (!silent_.empty()) {
      const Nanos left = std::max<Nanos>(silent_.front().deadline - MonotonicNow(), 0);
      wait = static_cast<int>(left / kMillisecond) + 1;
    }
    if (poll(entries.data(), entries.size(), wait) < 0) continue;  // EINTR.
    {
      const MutexLock lock(mutex_);
      if (stopping_) break;
    }
    size_t at = 0;
    const Nanos now = MonotonicNow();
    for (auto silent = silent_.begin(); silent != silent_.end();) {
      const bool spoke = entries[++at].revents != 0;
      const bool over = spoke ? Sort(*silent) : now >= silent->deadline;
      silent = over ? silent_.erase(silent) : std::next(silent);
    }
    if (entries[0].revents != 0) Accept();
  }
  silent_.clear();
}

void GrpcListener::Accept() {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  UniqueFd fd(
      accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    // Out of descriptors or memory: those who wait stay in the backlog.
    if (errno != ECONNABORTED && errno != EINTR && errno != EAGAIN)
      poll(nullptr, 0, kNoDescriptorsPause);
    return;
  }
  std::string peer = NameOf(from);
  if (!Admit(fd.get(), peer, AddressOf(peer))) return;
  const int on = 1, first_bytes = kBlockMagic.size();
  const auto patience = static_cast<unsigned int>(limits_.silence_limit / kMillisecond);
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  // It is not woken for before so many have come, or the other end has gone.
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVLOWAT, &first_bytes, sizeof first_bytes);
  silent_.push_back({std::move(fd), std::move(peer), MonotonicNow() + kFirstBytesTime});
}

// Of a connection that said something: whose it is. False: that is still to be seen.
bool GrpcListener::Sort(Silent& silent) {
  char first[kBlockMagic.size()];
  const ssize_t size = recv(silent.fd.get(), first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size < static_cast<ssize_t>(sizeof first)) return true;  // It has gone.
  const int any = 1;
  setsockopt(silent.fd.get(), SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
  if (std::string_view(first, sizeof first) == kBlockMagic) {
    take_block_connection_(std::move(silent.fd), silent.peer);
    return true;
  }
  Acceptor::NewConnectionParameters connection;
  connection.listener_fd = -1;
  connection.fd = silent.fd.Release();
  acceptor_->HandleNewConnection(&connection);
  return true;
}

bool GrpcListener::Admit(int fd, const std::string& peer, const std::string& address) {
  const MutexLock lock(mutex_);
  const uint64_t descriptors = DescriptorLimit();
  const size_t most = std::min<size_t>(limits_.strangers, descriptors / kPartOfDescriptors);
  const size_t most_of_one = std::max(kLeastOfOneAddress, most / kPartOfOneAddress);
  const uint64_t reserved =
      std::min(limits_.reserved_descriptors, descriptors / kPartOfDescriptors);
  const auto is_full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return strangers_.size() >= most || of_address_[address] >= most_of_one;
  };
  if (is_full()) ForgetClosed();
  struct stat info{};
  // The lowest free number is given: a high one says that there are few left.
  if (is_full() || static_cast<uint64_t>(fd) + reserved >= descriptors || fstat(fd, &info) != 0) {
    if (of_address_[address] == 0) of_address_.erase(address);
    if (++refused_ == 1 || refused_ % 1000 == 0) {
      Log(LogLevel::kWarning, "refused a connection from ", address, ", ", refused_,
          " in all: there are too many that have not proven themselves");
    }
    return false;
  }
  // Its former owner has gone, if somebody has its port again.
  if (strangers_.insert_or_assign(peer, Stranger{fd, info.st_ino, address}).second)
    ++of_address_[address];
  return true;
}

void GrpcListener::ForgetClosed() {
  const Nanos now = MonotonicNow();
  if (now - looked_at_ < kLookPeriod) return;
  looked_at_ = now;
  std::erase_if(strangers_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Stranger& stranger = entry.second;
    struct stat info{};
    if (fstat(stranger.fd, &info) == 0 && info.st_ino == stranger.inode) return false;
    if (--of_address_[stranger.address] == 0) of_address_.erase(stranger.address);
    return true;
  });
}

void GrpcListener::Proven(const std::string& peer) {
  const MutexLock lock(mutex_);
  const auto found = strangers_.find(Plain(peer));
  if (found == strangers_.end()) return;
  if (--of_address_[found->second.address] == 0) of_address_.erase(found->second.address);
  strangers_.erase(found);
}

}  // namespace sheaf
