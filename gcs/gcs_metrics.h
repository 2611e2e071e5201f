// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The figures of the GCS as the metrics catalog names them.
#pragma once

#include "gcs/gcs_service.h"
#include "metrics/page.h"

namespace sheaf {

// Sets the counters and gauges of `page` that the GCS owns; no other writes them. What storage
// counts is not among them.
void WriteGcsMetrics(const GcsStats& stats, metrics::Page& page);

}  // namespace sheaf
