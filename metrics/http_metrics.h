// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What an HTTP server does, on a metrics page, which outlives the server.
#pragma once

#include <algorithm>

#include "http/server.h"
#include "metrics/counter.h"

namespace sheaf::metrics {

inline http::ServerEvents HttpEventsOn(Page& page) {
  http::ServerEvents events;
  events.answered = [&page](int status, Nanos took) {
    constexpr int kFirst = static_cast<int>(CounterId::kHttpInformed);
    Counter(page, static_cast<CounterId>(kFirst + std::clamp(status / 100, 1, 5) - 1)).Add();
    Histogram(page, HistogramId::kHttpAnswer).Observe(took);
  };
  events.connections = [open = Gauge(page, GaugeId::kHttpConnections),
                        before = 0](int now) mutable {
    open.Add(now - before);
    before = now;
  };
  events.turned_away = [refused = Counter(page, CounterId::kHttpTurnedAway)]() mutable {
    refused.Add();
  };
  return events;
}

}  // namespace sheaf::metrics
