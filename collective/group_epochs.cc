// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/group_epochs.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "base/mutex.h"

namespace sheaf {
namespace {

struct Epochs {
  Mutex mutex;
  std::map<std::string, uint64_t> last ABSL_GUARDED_BY(mutex);  // By the group's name.
};
Epochs& TheEpochs() {
  static Epochs& epochs = *new Epochs;
  return epochs;
}
std::atomic<uint64_t> forks{0};

}  // namespace

uint64_t NextEpoch(const std::string& name, uint64_t at_least) {
  Epochs& epochs = TheEpochs();
  const MutexLock lock(epochs.mutex);
  const auto last = epochs.last.find(name);
  return last == epochs.last.end() ? at_least : std::max(at_least, last->second + 1);
}

void RememberEpoch(const std::string& name, uint64_t epoch) {
  Epochs& epochs = TheEpochs();
  const MutexLock lock(epochs.mutex);
  uint64_t& last = epochs.last[name];
  last = std::max(last, epoch);
}

uint64_t Forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace sheaf
