// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// gRPC's channels and server as links want them: one connection per channel, failures known soon,
// few threads, certificates on both sides where there are any.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rpc/grpc_listener.h"
#include "rpc/security/grpc_certificates.h"

namespace sheaf {

struct ChannelOptions {
  std::string address;
  const GrpcCertificates* certificates = nullptr;  // Null: in plain.
  Nanos silence_limit = 0;  // Unacknowledged bytes this old end the connection.
};

// Connects on its first call, over a connection that it shares with no other channel.
std::shared_ptr<grpc::Channel> MakeChannel(const ChannelOptions& options);

struct ServerOptions {
  const GrpcCertificates* certificates = nullptr;  // Null: in plain.
  Nanos silence_limit = 0;
  Nanos idle_limit = 0;  // Connections over which nothing is asked for so long are closed.
  GrpcListener::TakeBlockConnection take_block_connection;
};

// Serves the connections of `listener`, which it starts. kInvalidArgument: certificates that cannot
// be read.
absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(GrpcListener& listener,
                                                          const ServerOptions& options,
                                                          grpc::CallbackGenericService* service);

// Before anything else of gRPC: its own log lines go to ours, at level debug (whoever reaches the
// port can cause them), and its callback threads stay for the life of the process.
void PrepareGrpc();

absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// The bytes of `buffer` in one piece at a multiple of 8. Copies unless they lie like that already.
struct FlatBytes {
  std::shared_ptr<const void> hold;
  std::string_view bytes;
};
FlatBytes Flatten(const grpc::ByteBuffer& buffer);

// A slice over `bytes`, which `hold` keeps alive until gRPC is done with them.
grpc::Slice SliceOver(std::string_view bytes, std::shared_ptr<const void> hold);
inline grpc::Slice CopyToSlice(std::string_view bytes) {
  return grpc::Slice(bytes.data(), bytes.size());
}
inline grpc::ByteBuffer BufferOf(std::string_view bytes) {
  const grpc::Slice slice = CopyToSlice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace sheaf
