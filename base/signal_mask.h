// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Signals are for the user's threads: while this lives the calling thread takes none, and threads
// that it starts never do.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace sheaf {

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace sheaf
