// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Moves arrays between the ranks of a group on several nodes. gloo_transport.cc implements it, in a
// shared library of its own (libsheaf_gloo.so) that is loaded when the first such group is formed:
// Gloo brings five libraries along that nobody else needs. So this header has plain types only, and
// no exception crosses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf {

class BulkTransport {
 public:
  // Transfers of one pair and one lane arrive in the order in which they were begun, and both ends
  // begin them with the same sizes.
  enum class Lane : uint64_t { kProof, kCollective, kMessage };

  class Transfer {
   public:
    // Gives up a transfer that is not done: the transport is broken then.
    virtual ~Transfer() = default;
    // Waits until the bytes are there, or may be used again. False: not within `timeout_ms`, or the
    // transport is broken; it is then.
    virtual bool Wait(int64_t timeout_ms) = 0;
  };

  virtual ~BulkTransport() = default;
  // Where `peer` is awaited: bytes for Connect of `peer`, which stay valid.
  virtual const void* AddressFor(int peer, size_t* size) = 0;
  // Each pair connects both ways, every rank in the order of its peers. False: the reason is
  // Error().
  virtual bool Connect(int peer, const void* address, size_t size) = 0;
  // `bytes` stay where they are until the transfer is done. nullptr: the transport is broken. The
  // caller deletes it.
  virtual Transfer* Send(int peer, Lane lane, const void* bytes, size_t size) = 0;
  virtual Transfer* Receive(int peer, Lane lane, void* bytes, size_t size) = 0;
  // Ends all transfers, now and later. Any thread, also while others wait.
  virtual void Break() = 0;
  virtual const char* Error() const = 0;  // Of Connect.
};

// `host`: this node's address; nothing listens on another. Connecting a pair takes at most
// `connect_timeout_ms`. nullptr: `error` (of `error_size` bytes) says why.
using MakeBulkTransport = BulkTransport* (*)(int rank, int world_size, const char* host,
                                             int64_t connect_timeout_ms, char* error,
                                             size_t error_size);
inline constexpr char kBulkLibrary[] = "libsheaf_gloo.so";
inline constexpr char kBulkSymbol[] = "sheaf_make_gloo_transport";

}  // namespace sheaf
