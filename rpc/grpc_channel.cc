// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/grpc_channel.h"

#include <grpc/slice.h>
#include <grpc/support/log.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/link_wire.h"

namespace sheaf {
namespace {

int Milliseconds(Nanos time) { return static_cast<int>(std::max<Nanos>(time / kMillisecond, 1)); }

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // With keepalive gRPC sets TCP_USER_TIMEOUT too, to the keepalive's timeout.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(2 * options.silence_limit));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.silence_limit));
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(options.address,
                                   options.certificates != nullptr
                                       ? options.certificates->ForChannel()
                                       : grpc::InsecureChannelCredentials(),
                                   arguments);
}

absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(GrpcListener& listener,
                                                          const ServerOptions& server_options,
                                                          grpc::CallbackGenericService* service) {
  const Nanos silence_limit = server_options.silence_limit;
  grpc::ServerBuilder builder;
  std::unique_ptr<GrpcListener::Acceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          server_options.certificates != nullptr ? server_options.certificates->ForServer()
                                                 : grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             Milliseconds(server_options.idle_limit));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 4096);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(2 * silence_limit));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(silence_limit));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::InvalidArgumentError("cannot serve: the certificates cannot be read");
  }
  listener.Start(std::move(acceptor), server_options.take_block_connection);
  return server;
}

namespace {

// gRPC's callback threads end with the last channel or server that used them, and whoever drops
// that one waits for them: from a callback, for itself. A channel that nobody dials keeps them.
void KeepCallbackThreads() {
  struct Call {
    std::shared_ptr<grpc::Channel> channel;
    grpc::GenericStub stub;
    grpc::ClientContext context;
    grpc::ByteBuffer request, response;
  };
  // Without credentials gRPC gives a channel whose calls fail at once.
  auto channel = grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments());
  static Call* const call = new Call{channel, grpc::GenericStub(channel), {}, {}, {}};
  const grpc::Slice nothing = CopyToSlice("nothing");
  call->request = grpc::ByteBuffer(&nothing, 1);
  call->stub.UnaryCall(&call->context, "/sheaf.Link/None", {}, &call->request, &call->response,
                       [](const grpc::Status&) {});
}

}  // namespace

void PrepareGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* line) {
      const bool last_words = std::string_view(line->message).starts_with("assertion failed");
      Log(last_words ? LogLevel::kError : LogLevel::kDebug, "grpc: ", line->message, " (",
          line->file, ":", line->line, ")");
    });
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    // Debian's Abseil looks for cycles at each lock, gRPC takes dozens a message, and nobody else
    // here uses them.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    KeepCallbackThreads();
  });
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

FlatBytes Flatten(const grpc::ByteBuffer& buffer) {
  grpc::Slice single;
  if (buffer.TrySingleSlice(&single).ok()) {
    if (reinterpret_cast<uintptr_t>(single.begin()) % 8 == 0) {
      auto hold = std::make_shared<grpc::Slice>(single);
      // A short slice lies inside its object.
      return {hold, {reinterpret_cast<const char*>(hold->begin()), hold->size()}};
    }
  }
  const size_t size = buffer.Length();
  std::shared_ptr<char[]> bytes(new char[size]);
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    std::memcpy(bytes.get() + at, slice.begin(), slice.size());
    at += slice.size();
  }
  const std::string_view view(bytes.get(), at);
  return {std::move(bytes), view};
}

grpc::Slice SliceOver(std::string_view bytes, std::shared_ptr<const void> hold) {
  using Hold = std::shared_ptr<const void>;
  return grpc::Slice(
      grpc_slice_new_with_user_data(
          const_cast<char*>(bytes.data()), bytes.size(),
          [](void* kept) { delete static_cast<Hold*>(kept); }, new Hold(std::move(hold))),
      grpc::Slice::STEAL_REF);
}

}  // namespace sheaf
