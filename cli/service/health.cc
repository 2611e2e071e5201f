// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/service/health.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "rpc/security/hmac.h"

namespace sheaf::cli {
namespace {

http::Response ResponseOf(const absl::Status& health) {
  if (!health.ok()) return http::PlainText(503, std::string(health.message()));
  return {.body = "success", .content_type = "text/plain; charset=utf-8"};
}

}  // namespace

http::Router HealthRoutes(const Pulse& pulse) {
  http::Router router;
  const auto add = [&](const char* path, absl::Status (*health)(const Pulse&)) {
    router.Add({.method = "GET",
                .pattern = path,
                .right = http::Right::kOpen,
                .handler = [&pulse, health](const http::Request&, const http::Reply& reply) {
                  reply.Send(ResponseOf(health(pulse)));
                }});
  };
  add("/api/healthz", [](const Pulse& of) { return of.Node(); });
  add("/api/local_raylet_healthz", [](const Pulse& of) { return of.Raylet(); });
  add("/api/gcs_healthz", [](const Pulse& of) { return of.Gcs(); });
  return router;
}

absl::StatusOr<std::unique_ptr<http::Server>> ServeHealth(const std::string& address, uint16_t port,
                                                          const Pulse& pulse) {
  http::ServerOptions server;
  server.address = address;
  server.port = port;
  server.access.trust = http::Trust::kTokenOnly;
  // No route asks for it, and nobody knows it.
  const Digest secret = SecretBytes();
  server.token = absl::BytesToHexString(absl::string_view(secret.data(), secret.size()));
  server.limits.idle_time = 0;
  server.thread_name = "sheaf-health";
  absl::StatusOr<std::unique_ptr<http::Server>> started =
      http::Server::Start(std::move(server), HealthRoutes(pulse));
  if (started.ok()) return started;
  return absl::Status(started.status().code(),
                      absl::StrCat("--health-port: ", started.status().message()));
}

}  // namespace sheaf::cli
