// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The bounds of pulls: bytes, chunks, and times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace sheaf {

struct ObjectPullerOptions {
  NodeNumber node = 0;
  uint64_t chunk_bytes = 4 << 20;
  uint32_t chunks_in_flight = 4;  // Of one object.
  uint64_t most_bytes = uint64_t{256}
                        << 20;         // Of all objects that are being pulled; one may exceed it.
  size_t most_pulls = 128;             // At a time.
  Nanos fetch_timeout = 10 * kSecond;  // For one answer.
  Nanos room_wait = 10 * kSecond;      // For room in the store.
  Nanos give_up_after = 30 * kSecond;  // Without any progress.
  Nanos first_retry = 50 * kMillisecond;  // Of a source that failed; doubles.
  Nanos last_retry = kSecond;
  Nanos look_again = 20 * kMillisecond;  // At a source that had nothing new.
  Nanos look_at_speed = 2 * kSecond;     // Of what is coming, while another source has it.
  Nanos most_left = 10 * kSecond;        // For what is left; more, and the other is asked instead.
  Nanos slow_for = 30 * kSecond;         // Then it is the last to be asked for so long.
  uint32_t most_in_vain =
      3;  // Questions in a row, then what the source answers others is no progress.
  uint32_t most_damaged = 3;  // Answers in a row, then a source is not asked any more.
};

}  // namespace sheaf
