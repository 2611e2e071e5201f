// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/started_calls.h"

namespace sheaf {

uint64_t ProcessPage::StartedOf(ProcessId caller) const {
  for (const Caller& place : callers) {
    if (place.process.load(std::memory_order_acquire) == caller.packed())
      return place.started_push.load(std::memory_order_acquire);
  }
  return started_push.load(std::memory_order_acquire);
}

void StartedCalls::Add(uint64_t lease, ProcessId caller, uint64_t push, bool many_callers) {
  if (page_.started_lease.load(std::memory_order_relaxed) != lease) {
    page_.started_push.store(0, std::memory_order_relaxed);
    page_.started_lease.store(lease, std::memory_order_release);
  }
  std::atomic<uint64_t>& number = many_callers ? NumberOf(caller) : page_.started_push;
  if (push > number.load(std::memory_order_relaxed)) number.store(push, std::memory_order_release);
}

std::atomic<uint64_t>& StartedCalls::NumberOf(ProcessId caller) {
  if (last_number_ != nullptr && last_caller_ == caller) return *last_number_;
  last_caller_ = caller;
  if (const auto it = places_.find(caller); it != places_.end())
    return *(last_number_ = &page_.callers[it->second].started_push);
  if (places_.size() == ProcessPage::kCallers) return *(last_number_ = &page_.started_push);
  const auto taken = [&] {
    return page_.callers[next_place_].process.load(std::memory_order_relaxed) != 0;
  };
  while (taken()) next_place_ = (next_place_ + 1) % ProcessPage::kCallers;
  ProcessPage::Caller& place = page_.callers[next_place_];
  // What it started while there was no place for it counts on.
  place.started_push.store(page_.started_push.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  place.process.store(caller.packed(), std::memory_order_release);
  places_.emplace(caller, next_place_);
  return *(last_number_ = &place.started_push);
}

void StartedCalls::Forget(ProcessId caller) {
  const auto it = places_.find(caller);
  if (it == places_.end()) return;
  page_.callers[it->second].process.store(0, std::memory_order_release);
  places_.erase(it);
  last_number_ = nullptr;
}

}  // namespace sheaf
