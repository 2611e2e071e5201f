// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A metrics endpoint over known figures, for prometheus_test.py: prints its URL and serves until
// its input ends.
#include <cstdio>
#include <memory>

#include "metrics/counter.h"
#include "metrics/http_endpoint.h"
#include "metrics/own_page.h"
#include "metrics/registry.h"

int main() {
  using namespace sheaf::metrics;
  Registry registry("0.0.0-test");
  auto page = std::make_unique<Page>();
  registry.Add(*page);
  // Every series has a figure of its own, so that a mix-up shows.
  for (size_t i = 0; i < kCounterCount; ++i)
    Counter(*page, static_cast<CounterId>(i)).Add(1000 + i);
  for (size_t i = 0; i < kGaugeCount; ++i)
    Gauge(*page, static_cast<GaugeId>(i)).Set(static_cast<int64_t>(2000 + i));
  for (size_t i = 0; i < kHistogramCount; ++i)
    Histogram(*page, static_cast<HistogramId>(i)).Observe(1'000'000);
  OwnPage own;  // Its own requests, which are not among the figures.
  auto endpoint = HttpEndpoint::Start({}, registry, own.page());
  if (!endpoint.ok()) {
    std::fprintf(stderr, "%s\n", endpoint.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", (*endpoint)->url().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
