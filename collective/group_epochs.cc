// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/group_epochs.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace sheaf {
namespace {

std::mutex epochs_mutex;
std::map<std::string, uint64_t>& Epochs() {  // Guarded by epochs_mutex.
  static auto& epochs = *new std::map<std::string, uint64_t>;
  return epochs;
}
std::atomic<uint64_t> forks{0};

}  // namespace

uint64_t NextEpoch(const std::string& name, uint64_t at_least) {
  const std::lock_guard<std::mutex> lock(epochs_mutex);
  const auto last = Epochs().find(name);
  return last == Epochs().end() ? at_least : std::max(at_least, last->second + 1);
}

void RememberEpoch(const std::string& name, uint64_t epoch) {
  const std::lock_guard<std::mutex> lock(epochs_mutex);
  uint64_t& last = Epochs()[name];
  last = std::max(last, epoch);
}

uint64_t Forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace sheaf
