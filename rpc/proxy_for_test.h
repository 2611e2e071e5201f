// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A TCP relay on 127.0.0.1 that does to its connections what networks do: cut, swallow, delay.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/unique_fd.h"

namespace sheaf {

inline sockaddr_in LoopbackAddress(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

inline UniqueFd ConnectTo(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = LoopbackAddress(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd.Reset();
  }
  return fd;
}

class Proxy {
 public:
  explicit Proxy(const std::string& target) : target_(PortOf(target)) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address = LoopbackAddress(0);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    socklen_t size = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    REQUIRE(listen(listener_.get(), 64) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Ends all connections, at once (RST), in the middle of whatever is on its way.
  void Cut() { cut_ = true; }
  // Takes no byte any more from those who dialled (or from both), and says nothing of it. New
  // connections too.
  enum class Hole { kNone, kFromDialler, kBoth };
  void Swallow(Hole hole) { hole_ = hole; }
  void Delay(Nanos delay) { delay_ = delay; }
  // So many bytes a second in each direction of a connection (0: as many as come). What waits for
  // that waits at the sender: little more is read than may leave.
  void Throttle(int64_t bytes_per_second) { bytes_per_second_ = bytes_per_second; }
  int connections() const { return connections_; }
  int dials() const { return dials_; }  // Those that led nowhere, too.

 private:
  struct Half {
    std::deque<std::pair<Nanos, std::string>> queue;  // When it may leave, and what.
    Nanos credit_at = 0;                              // Of a throttled one: when it was counted,
    int64_t credit = 0;                               // and how many bytes may leave by now.
    bool over = false;
  };
  struct Pair {
    UniqueFd dialler, target;
    Half to_target, to_dialler;
    bool dead = false;
  };

  void Run() {
    std::vector<std::unique_ptr<Pair>> pairs;
    while (!stop_) {
      std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
      for (const auto& pair : pairs) {
        fds.push_back({pair->dialler.get(), POLLIN, 0});
        fds.push_back({pair->target.get(), POLLIN, 0});
      }
      if (bytes_per_second_ != 0) {
        poll(nullptr, 0, 1);  // What is there to be read may not be yet.
      } else {
        poll(fds.data(), fds.size(), hole_ == Hole::kNone && delay_ == 0 ? 5 : 1);
      }
      if (cut_.exchange(false)) {
        for (auto& pair : pairs) Reset(*pair);
      }
      const UniqueFd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted.valid()) {
        ++dials_;
        auto pair = std::make_unique<Pair>();
        pair->dialler = UniqueFd(dup(accepted.get()));
        pair->target = ConnectTo(target_);
        if (pair->target.valid()) {
          ++connections_;
          pairs.push_back(std::move(pair));
        }
      }
      for (auto& pair : pairs) {
        const Hole hole = hole_;
        if (hole == Hole::kNone) Take(pair->dialler, pair->to_target, *pair);
        if (hole != Hole::kBoth) Take(pair->target, pair->to_dialler, *pair);
        Give(pair->target, pair->to_target, *pair);
        Give(pair->dialler, pair->to_dialler, *pair);
      }
      std::erase_if(pairs, [](const auto& pair) { return pair->dead; });
    }
  }
  void Take(const UniqueFd& from, Half& half, Pair& pair) {
    if (half.over || half.queue.size() > 256) return;
    const int64_t rate = bytes_per_second_;
    const Nanos now = MonotonicNow();
    char bytes[65536];
    size_t most = sizeof bytes;
    if (rate != 0) {
      const Nanos passed = std::min(now - half.credit_at, kSecond);
      half.credit_at = now;
      half.credit = std::min<int64_t>(half.credit + passed * rate / kSecond, sizeof bytes);
      if (half.credit < 1024) return;
      most = static_cast<size_t>(half.credit);
    }
    const ssize_t got = recv(from.get(), bytes, most, MSG_DONTWAIT);
    if (got > 0) {
      half.credit -= got;
      half.queue.emplace_back(now + delay_, std::string(bytes, got));
    } else if (got == 0) {
      half.over = true;
    } else if (errno != EAGAIN && errno != EINTR) {
      pair.dead = true;
    }
  }
  void Give(const UniqueFd& to, Half& half, Pair& pair) {
    while (!half.queue.empty() && half.queue.front().first <= MonotonicNow()) {
      std::string& bytes = half.queue.front().second;
      const ssize_t sent = send(to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) pair.dead = true;
      if (sent < static_cast<ssize_t>(bytes.size())) {
        if (sent > 0) bytes.erase(0, sent);
        return;
      }
      half.queue.pop_front();
    }
    if (half.over && half.queue.empty()) pair.dead = true;
  }
  static void Reset(Pair& pair) {
    const linger now{1, 0};
    for (const UniqueFd* fd : {&pair.dialler, &pair.target}) {
      setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    pair.dead = true;
  }

  const uint16_t target_;
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stop_ = false, cut_ = false;
  std::atomic<Hole> hole_ = Hole::kNone;
  std::atomic<Nanos> delay_ = 0;
  std::atomic<int64_t> bytes_per_second_ = 0;
  std::atomic<int> connections_ = 0, dials_ = 0;
  std::thread thread_;
};

}  // namespace sheaf
