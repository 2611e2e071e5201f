// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One TCP connection over which blocks travel, under TLS or not. Its owner's thread blocks in it, no
// longer than the deadlines that it gives; another thread can end that.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "rpc/security/tls_stream.h"

namespace sheaf {

// Times are MonotonicNow's. Every function but Shutdown returns kUnavailable when the connection is
// over, and kDeadlineExceeded; it is of no use after either.
class BlockSocket {
 public:
  BlockSocket() = default;  // To Connect.
  explicit BlockSocket(UniqueFd accepted);
  BlockSocket(const BlockSocket&) = delete;
  BlockSocket& operator=(const BlockSocket&) = delete;

  // To `address`, "host:port". A name is looked up by the system, which nothing breaks off.
  absl::Status Connect(const std::string& address, Nanos deadline);
  // From here on all is encrypted. `host`: the one that was dialled; empty: this end was.
  // kUnauthenticated: the other end's certificate does not fit, or does not carry `peer_name`
  // (empty: any).
  absl::Status StartTls(const TlsContext& context, const std::string& host,
                        const std::string& peer_name, Nanos deadline);

  // At least one byte, into `to`.
  absl::StatusOr<size_t> ReadSome(char* to, size_t most, Nanos deadline);
  absl::Status ReadAll(char* to, size_t size, Nanos deadline);
  template <class T>
  absl::Status ReadInto(T* value, Nanos deadline) {
    return ReadAll(reinterpret_cast<char*>(value), sizeof *value, deadline);
  }
  // `more`: what is written next follows at once, and leaves with it.
  absl::Status Write(std::string_view bytes, bool more, Nanos deadline);
  // The same, for as long as some of them leave: kProgressBytes in each `patience`.
  absl::Status WriteWhileItMoves(std::string_view bytes, bool more, Nanos patience);
  static constexpr size_t kProgressBytes = 64 * 1024;
  // Waits until there is something to read.
  absl::Status AwaitBytes(Nanos deadline);
  // It stands, and the other end has said nothing that was not read.
  bool IsQuiet() const;

  // Any thread: whatever is done with it ends, now and later.
  void Shutdown();

 private:
  absl::Status Prepare();
  // So many bytes left; 0: none did, and there is time left.
  absl::StatusOr<size_t> WriteSome(std::string_view bytes, bool more, Nanos deadline);
  absl::Status GoesOn(ssize_t result, Nanos deadline) const;

  // Set once, while no thread but the owner's knows more than Shutdown.
  std::atomic<int> shared_fd_{-1};
  UniqueFd fd_;
  std::unique_ptr<TlsStream> tls_;
  std::atomic<bool> over_{false};
};

}  // namespace sheaf
