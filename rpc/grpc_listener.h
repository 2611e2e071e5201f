// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The port of the links: accepts connections and gives them to gRPC, or to who serves blocks, as
// their first bytes say (rpc/blocks/block_wire.h); but no more of strangers than this process can
// bear. Whoever reaches the port can open connections and say nothing; each costs
// a descriptor and some tens of KB, until gRPC closes it for idleness. So there are bounds on those
// that have not proven themselves, of one address and of all, and the last descriptors are not for
// them. Those that have are not counted: they are the cluster.
#pragma once

#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "rpc/listen_address.h"

namespace sheaf {

class GrpcListener {
 public:
  struct Limits {
    size_t strangers = 512;  // At once, and no more than an eighth of the descriptors. Of one
                             // address a quarter of that.
    uint64_t reserved_descriptors = 64;  // Of the process's limit.
    Nanos silence_limit = 5 * kSecond;   // Unacknowledged bytes this old end a connection.
  };
  // Listens; `address->port` becomes the real one. kAlreadyExists: it is taken, or none of this
  // machine.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(ListenAddress* address,
                                                              const Limits& limits);
  ~GrpcListener() { Stop(); }

  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  using TakeBlockConnection = std::function<void(UniqueFd fd, const std::string& peer)>;
  // `take` is called on the listener's thread, until Stop has returned.
  void Start(std::unique_ptr<Acceptor> acceptor, TakeBlockConnection take);
  // Who speaks over the connection of `peer` (as gRPC calls it) is of the cluster. Any thread.
  void Proven(const std::string& peer);
  // No connection is accepted any more. Idempotent.
  void Stop();
  uint64_t refused() const;  // Connections so far. Any thread.

 private:
  struct Stranger {
    int fd;  // gRPC's; as long as it is the socket `inode`, the connection stands.
    uint64_t inode;
    std::string address;
  };
  // Accepted, and has not said what it is.
  struct Silent {
    UniqueFd fd;
    std::string peer;
    Nanos deadline;
  };
  GrpcListener(UniqueFd fd, const Limits& limits);
  void Run();
  void Accept();
  bool Sort(Silent& silent);
  bool Admit(int fd, const std::string& peer, const std::string& address);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd fd_;
  const Limits limits_;
  std::unique_ptr<Acceptor> acceptor_;
  TakeBlockConnection take_block_connection_;
  std::list<Silent> silent_;  // The thread's own, the oldest first.

  mutable Mutex mutex_;
  std::map<std::string, Stranger> strangers_ ABSL_GUARDED_BY(mutex_);  // By peer.
  std::map<std::string, size_t> of_address_ ABSL_GUARDED_BY(mutex_);
  Nanos looked_at_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ThreadExecutor> thread_;
};

// "ipv4:10.0.0.1:4711", as gRPC names peers, without the port; of anything else all of it.
std::string AddressOf(const std::string& peer);

}  // namespace sheaf
