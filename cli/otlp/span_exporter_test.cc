// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/otlp/span_exporter.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>

#include "base/testing/wait_until_for_test.h"
#include "http/server.h"
#include "proto/otlp_trace.pb.h"

namespace sheaf::cli {
namespace {

// Answers with `status`; 0: never.
struct Receiver {
  explicit Receiver(int status) {
    http::Router router;
    router.Add({.method = "POST",
                .pattern = "/v1/traces",
                .right = http::Right::kOpen,
                .handler =
                    [this, status](const http::Request& request, const http::Reply& reply) {
                      proto::otlp::ExportTraceServiceRequest sent;
                      if (sent.ParseFromString(request.body))
                        spans += sent.resource_spans(0).scope_spans(0).spans_size();
                      status == 0 ? kept.push_back(reply) : reply.Send({.status = status});
                    },
                .body = http::Body::kMemory});
    auto started = http::Server::Start({}, std::move(router));
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  std::unique_ptr<SpanExporter> Exporter(Nanos patience = kSecond) {
    OtlpSettings settings;
    settings.patience = patience;
    settings.url = *http::ParseUrl(server->url() + "/v1/traces");
    return *SpanExporter::Start(std::move(settings));
  }
  std::atomic<int> spans = 0;
  std::vector<http::Reply> kept;
  std::unique_ptr<http::Server> server;
};

void AddSpans(SpanExporter& exporter, int count) {
  const auto place = std::make_shared<const telemetry::TaskHistory::Place>();
  for (int i = 0; i < count; ++i) exporter.queue().Add({}, place, "", {});
}

SCENARIO("what was added before the end is sent") {
  Receiver receiver(200);
  {
    const auto exporter = receiver.Exporter();
    AddSpans(*exporter, 700);
  }
  CHECK(receiver.spans == 700);
}

SCENARIO("what a receiver does not want is dropped and counted") {
  Receiver receiver(400);
  const auto exporter = receiver.Exporter();
  AddSpans(*exporter, 512);
  CHECK(WaitUntil(30 * kSecond, [&] { return exporter->queue().dropped() == 512; }));
  CHECK(exporter->queue().sent() == 0);
}

SCENARIO("spans that are not taken for too long make room for the next ones") {
  Receiver receiver(503);
  const auto exporter = receiver.Exporter(/*patience=*/0);
  AddSpans(*exporter, 700);  // More than one request.
  CHECK(WaitUntil(30 * kSecond, [&] { return exporter->queue().dropped() == 700; }));
  CHECK(receiver.spans == 700);
}

SCENARIO("a receiver that is silent delays the end by its last words alone") {
  Receiver receiver(0);
  auto exporter = receiver.Exporter();
  AddSpans(*exporter, 600);
  CHECK(WaitUntil(30 * kSecond, [&] { return receiver.spans > 0; }));
  const Nanos begin = MonotonicNow();
  exporter.reset();
  CHECK(MonotonicNow() - begin < 5 * kSecond);  // The request itself might take ten.
}

}  // namespace
}  // namespace sheaf::cli
