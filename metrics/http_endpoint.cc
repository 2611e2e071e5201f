// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/http_endpoint.h"

#include <locale>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "http/server.h"
#include "metrics/http_metrics.h"
#include "prometheus/text_serializer.h"

namespace sheaf::metrics {
namespace {

class Endpoint final : public HttpEndpoint {
 public:
  explicit Endpoint(std::unique_ptr<http::Server> server) : server_(std::move(server)) {
    url_ = absl::StrCat(server_->url(), "/metrics");
  }
  uint16_t port() const override { return server_->port(); }

 private:
  const std::unique_ptr<http::Server> server_;
};

std::string TextOf(const prometheus::Collectable& source) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  prometheus::TextSerializer().Serialize(text, source.Collect());
  return std::move(text).str();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const EndpointOptions& options, const prometheus::Collectable& source, Page& page,
    http::Router router) {
  router.Add({.method = "GET",
              .pattern = "/metrics",
              .handler = [&source](const http::Request&, const http::Reply& reply) {
                reply.Send({.body = TextOf(source),
                            .content_type = "text/plain; version=0.0.4; charset=utf-8"});
              }});
  http::ServerOptions server;
  server.address = options.address;
  server.port = options.port;
  server.host_name = options.host_name;
  server.token = options.token;
  server.access.trust =
      options.token.empty() ? http::Trust::kAnyLocalUser : http::Trust::kTokenOnly;
  server.limits.idle_time = 0;
  server.thread_name = "sheaf-metrics";
  server.events = HttpEventsOn(page);
  absl::StatusOr<std::unique_ptr<http::Server>> started =
      http::Server::Start(std::move(server), std::move(router));
  if (absl::IsFailedPrecondition(started.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("serving metrics on ", options.address,
                     ", beyond this machine, needs a token (--metrics-token-file)"));
  }
  if (!started.ok()) {
    return absl::Status(started.status().code(),
                        absl::StrCat("metrics: ", started.status().message()));
  }
  return std::make_unique<Endpoint>(*std::move(started));
}

}  // namespace sheaf::metrics
