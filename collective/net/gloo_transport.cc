// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// BulkTransport over Gloo's TCP pairs and unbound buffers. Gloo's sockets have no authentication:
// whoever reaches the port of a pair first is its peer. Ports are open only until the pair is
// connected, on this node's address alone, and the group then exchanges a proof over each pair
// (net_group.cc) before it uses it.
//
// Gloo ends waits only by closing everything: a wait of no time on a buffer that nobody fills makes
// its context signal all pairs. That is how Break works, and why a transport that was broken, or on
// which a wait was too long, is of no more use.
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "collective/net/bulk_transport.h"

namespace sheaf {
namespace {

using gloo::transport::UnboundBuffer;

// Milliseconds that Gloo can add to a time.
std::chrono::milliseconds Bounded(int64_t timeout_ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, 1000LL * 3600 * 24 * 365));
}

// Gloo writes to sockets whose peer may be gone without saying that it wants no SIGPIPE, which
// would end the process: this thread, and those that it starts, get none while this lives.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now = {};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

class GlooTransfer final : public BulkTransport::Transfer {
 public:
  GlooTransfer(std::unique_ptr<UnboundBuffer> buffer, bool sends)
      : buffer_(std::move(buffer)), sends_(sends) {}
  bool Wait(int64_t timeout_ms) override {
    try {
      const std::chrono::milliseconds limit = Bounded(timeout_ms);
      return sends_ ? buffer_->waitSend(limit) : buffer_->waitRecv(limit);
    } catch (const std::exception&) {
      return false;
    }
  }

 private:
  const std::unique_ptr<UnboundBuffer> buffer_;
  const bool sends_;
};

class GlooTransport final : public BulkTransport {
 public:
  GlooTransport(int rank, int world_size, const char* host, int64_t connect_timeout_ms)
      : addresses_(static_cast<size_t>(world_size)) {
    const WithoutSigpipe quiet;  // Also in the thread of the device.
    gloo::transport::tcp::attr attributes(host);
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    context_ = device_->createContext(rank, world_size);
    // Gloo waits five times as long for a pair.
    context_->setTimeout(Bounded(std::max<int64_t>(connect_timeout_ms / 5, 1)));
    unused_ = context_->createUnboundBuffer(&nothing_, sizeof nothing_);
  }

  const void* AddressFor(int peer, size_t* size) override {
    std::vector<char>& address = addresses_[static_cast<size_t>(peer)];
    *size = 0;
    try {
      if (address.empty()) address = context_->createPair(peer)->address().bytes();
      *size = address.size();
    } catch (const std::exception& error) {
      error_ = error.what();
    }
    return address.data();
  }

  bool Connect(int peer, const void* address, size_t size) override {
    const WithoutSigpipe quiet;
    try {
      const char* const bytes = static_cast<const char*>(address);
      context_->getPair(peer)->connect(std::vector<char>(bytes, bytes + size));
      return true;
    } catch (const std::exception& error) {
      error_ = error.what();
      return false;
    }
  }

  Transfer* Send(int peer, Lane lane, const void* bytes, size_t size) override {
    return Begin(peer, lane, const_cast<void*>(bytes), size, true);
  }
  Transfer* Receive(int peer, Lane lane, void* bytes, size_t size) override {
    return Begin(peer, lane, bytes, size, false);
  }

  void Break() override {
    const WithoutSigpipe quiet;
    try {
      unused_->waitRecv(std::chrono::milliseconds(0));
    } catch (const std::exception&) {
      // As it should.
    }
  }

  const char* Error() const override { return error_.c_str(); }

 private:
  Transfer* Begin(int peer, Lane lane, void* bytes, size_t size, bool sends) {
    const WithoutSigpipe quiet;
    try {
      std::unique_ptr<UnboundBuffer> buffer = context_->createUnboundBuffer(bytes, size);
      const auto slot = static_cast<uint64_t>(lane);
      if (sends) {
        buffer->send(peer, slot, 0, size);
      } else {
        buffer->recv(peer, slot, 0, size);
      }
      return new GlooTransfer(std::move(buffer), sends);
    } catch (const std::exception&) {
      return nullptr;
    }
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::unique_ptr<UnboundBuffer> unused_;
  std::vector<std::vector<char>> addresses_;
  std::string error_;
  char nothing_ = 0;
};

}  // namespace
}  // namespace sheaf

extern "C" __attribute__((visibility("default"))) sheaf::BulkTransport* sheaf_make_gloo_transport(
    int rank, int world_size, const char* host, int64_t connect_timeout_ms, char* error,
    size_t error_size) {
  try {
    return new sheaf::GlooTransport(rank, world_size, host, connect_timeout_ms);
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
    return nullptr;
  }
}
