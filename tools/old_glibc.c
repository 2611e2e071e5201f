// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the static libstdc++ of Debian 12 asks the C library for, and glibc 2.31 does not have. Hidden, so that nothing else in the
// process meets it (tools/portable_libraries.sh).
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#pragma GCC visibility push(hidden)

// Not declared here by <sys/single_threaded.h>, which would give it the visibility of the system's: that there may be threads is
// always right.
char __libc_single_threaded;

uint32_t arc4random(void) {
  uint32_t number;
  while (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    if (errno != EINTR) abort();  // A kernel before 3.17, where no safe number is to be had.
  }
  return number;
}

#pragma GCC visibility pop
