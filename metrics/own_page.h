// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The counters of a daemon: a page in its own memory, as nobody outlives it to read them.
#pragma once

#include <cstddef>
#include <memory>

#include "metrics/page.h"

namespace sheaf::metrics {

class OwnPage {
 public:
  Page& page() { return *reinterpret_cast<Page*>(bytes_.get()); }

 private:
  struct alignas(64) Bytes {
    std::byte bytes[kMetricsBytes] = {};
  };
  std::unique_ptr<Bytes> bytes_ = std::make_unique<Bytes>();
};

}  // namespace sheaf::metrics
