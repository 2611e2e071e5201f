// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// metrics_catalog: prints docs/metrics.md.
#include <cstdio>

#include "metrics/catalog.h"

int main() {
  std::fputs(sheaf::metrics::CatalogAsMarkdown().c_str(), stdout);
  return 0;
}
