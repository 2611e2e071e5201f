// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// TLS 1.3 over a connected socket, from OpenSSL: each end shows a certificate that an authority of
// the other vouches for, and the dialled one that it is the host that was dialled; as gRPC has it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/security/credentials.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX and SSL.
struct ssl_st;

namespace sheaf {

// The certificates of one time. Constant: any thread.
class TlsContext {
 public:
  // kInvalidArgument: OpenSSL cannot use the certificates of `credentials`.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Make(const Credentials& credentials);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

// One thread at a time, which blocks SIGPIPE. The socket, its owner's, blocks, and may have times
// after which its reads and writes give up.
class TlsStream {
 public:
  // So much is written with one key at most; then this end takes the next, of which the other end
  // hears in the stream. AES-GCM allows some 380 GB (RFC 8446, 5.5).
  static constexpr uint64_t kBytesOfOneKey = uint64_t{16} << 30;

  // `host`: the one that was dialled, a name or an address; empty: this end was dialled.
  TlsStream(const TlsContext& context, int socket, const std::string& host,
            uint64_t bytes_of_one_key = kBytesOfOneKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // True: it is done. False: the time of the socket is over, call it again. kUnauthenticated: the
  // certificates do not fit. kUnavailable: the other end has gone, or speaks without TLS.
  absl::StatusOr<bool> Handshake();
  // As recv and send of the socket. errno is EAGAIN where its time is over, else EPROTO.
  ssize_t Read(char* to, size_t most);
  ssize_t Write(const char* from, size_t size);
  bool has_unread() const;      // That the socket does not show.
  bool wants_to_write() const;  // What went on no further waits for that, and not for reading.
  // Keys that this end has written with.
  uint64_t keys() const { return keys_; }
  // The names that the other end's certificate carries: as PeerNames of grpc_certificates.h.
  std::vector<std::string> PeerNames() const;

 private:
  ssize_t Result(int result) const;
  ssl_st* const ssl_;
  const uint64_t bytes_of_one_key_;
  uint64_t written_ = 0;  // With this key.
  uint64_t keys_ = 1;
};

}  // namespace sheaf
