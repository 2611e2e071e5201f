// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Serves http://ADDRESS:PORT/metrics in the Prometheus text format. Built on
// http/server.h, not on prometheus-cpp's Exposer, which checks no Host header (a web page could read
// the figures by DNS rebinding). One thread of its own, which blocks all signals.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "http/router.h"
#include "metrics/page.h"
#include "prometheus/collectable.h"

namespace sheaf::metrics {

struct EndpointOptions {
  std::string address = "127.0.0.1";  // Numeric, IPv4 or IPv6 without brackets.
  uint16_t port = 0;                  // 0: a free one.
  std::string host_name{};  // A further name that requests may call this host by. May be empty.
  // Not empty: requests need "Authorization: Bearer TOKEN", and may call this host by any name. An
  // address beyond loopback needs one.
  std::string token{};
};

class HttpEndpoint {
 public:
  // Starts to serve what `source` collects, and the routes of `router`; `source` outlives the
  // endpoint and is called from its thread, and so does `page`, where the endpoint counts.
  // kInvalidArgument: not a numeric address, or not loopback and no token. kUnavailable: the port is
  // taken.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const EndpointOptions& options,
                                                             const prometheus::Collectable& source,
                                                             Page& page, http::Router router = {});
  // Ends the threads: a few milliseconds, plus what a request takes.
  virtual ~HttpEndpoint() = default;
  virtual uint16_t port() const = 0;
  std::string url() const { return url_; }  // "http://127.0.0.1:41234/metrics".

 protected:
  std::string url_;
};

}  // namespace sheaf::metrics
