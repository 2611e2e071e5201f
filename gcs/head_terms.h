// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The least term (GcsOptions::least_term) of each start of the GCS on one head. The first is by the
// wall clock, so that a head with a copy of a disk leads all that had that disk before. Those after
// it follow their predecessor: a head that slept, and was replaced meanwhile, would otherwise lead
// its successor as soon as its GCS is started anew.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace sheaf {

class HeadTerms {
 public:
  uint64_t Least(Nanos unix_now) const {
    return last_ == 0 ? static_cast<uint64_t>(unix_now / kMillisecond) : last_ + 1;
  }
  // The GCS serves in this term, which others may have heard of though it is not on disk yet.
  void Began(uint64_t term) { last_ = term; }

 private:
  uint64_t last_ = 0;
};

}  // namespace sheaf
