// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One gRPC bidirectional stream of byte buffers, dialled or accepted, with the rules of gRPC's
// callback API inside: one write at a time, no write after the end, and an end that comes once.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

namespace sheaf {

class LinkStream {
 public:
  // Called on threads of gRPC, without any lock.
  class Events {
   public:
    virtual ~Events() = default;
    // One at a time, in order.
    virtual void OnMessage(const grpc::ByteBuffer& message) = 0;
    // The last Write is done: another may follow.
    virtual void OnWritten() = 0;
    // The stream is over; nothing follows.
    virtual void OnClosed(const grpc::Status& status) = 0;
  };

  virtual ~LinkStream() = default;
  // Begins to read. `events` lives until OnClosed has returned.
  virtual void Begin(std::shared_ptr<Events> events) = 0;
  // Not before OnWritten of the one before. Any thread. Goes nowhere once the stream is closing.
  virtual void Write(const grpc::ByteBuffer& message) = 0;
  // Ends the stream; an accepted one tells its peer `status` if nothing is being written. Any
  // thread, idempotent; OnClosed follows, on another thread.
  virtual void Close(const grpc::Status& status) = 0;

  // Who the other end is, as TLS knows it: from the first message on, until OnClosed.
  virtual std::shared_ptr<const grpc::AuthContext> peer() const = 0;

  // A call of `method` over a connection of `channel`.
  static std::shared_ptr<LinkStream> Dial(std::shared_ptr<grpc::Channel> channel,
                                          const std::string& method);
  // The stream of `context`, and what CreateReactor has to return.
  static std::shared_ptr<LinkStream> Accept(grpc::GenericCallbackServerContext* context,
                                            grpc::ServerGenericBidiReactor** reactor);
};

}  // namespace sheaf
