// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/child_mapping.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "base/mutex.h"

namespace sheaf {
namespace {

struct Range {
  size_t bytes = 0;
  int fd = -1;  // -1: nothing.
};
struct Registry {
  Mutex mutex;  // Held over forks.
  std::map<std::byte*, Range> ranges ABSL_GUARDED_BY(mutex);
};

Registry& Ranges() {
  static Registry& registry = *new Registry;
  return registry;
}

// In the child, which has one thread. In place of the shared mappings, so that the addresses stay
// taken until whoever made them unmaps them. Its own children copy what is private by themselves.
void Replace() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // LockForFork has locked.
  constexpr int kNothing = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | MAP_ANONYMOUS;
  for (const auto& [data, range] : Ranges().ranges) {
    const int access = range.fd < 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    const int kind = range.fd < 0 ? kNothing : MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    if (mmap(data, range.bytes, access, kind, range.fd, 0) != MAP_FAILED) continue;
    // Strict accounting of memory, perhaps, which counts a copy in full: it goes without.
    if (mmap(data, range.bytes, PROT_NONE, kNothing, -1, 0) == MAP_FAILED) _exit(127);
  }
  Ranges().ranges.clear();
  Ranges().mutex.Unlock();
}

void LockForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { Ranges().mutex.Lock(); }
void UnlockAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { Ranges().mutex.Unlock(); }

void Add(std::byte* data, Range range) {
  static const int registered = pthread_atfork(&LockForFork, &UnlockAfterFork, &Replace);
  (void)registered;
  Registry& registry = Ranges();
  const MutexLock lock(registry.mutex);
  registry.ranges[data] = range;
}

}  // namespace

ChildMapping ChildMapping::Copy(std::byte* data, size_t bytes, int fd) {
  Add(data, {bytes, fd});
  ChildMapping made;
  made.data_ = data;
  return made;
}

ChildMapping ChildMapping::Nothing(std::byte* data, size_t bytes) {
  Add(data, {bytes, -1});
  ChildMapping made;
  made.data_ = data;
  return made;
}

ChildMapping& ChildMapping::operator=(ChildMapping&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

ChildMapping::~ChildMapping() {
  if (data_ == nullptr) return;
  Registry& registry = Ranges();
  const MutexLock lock(registry.mutex);
  registry.ranges.erase(data_);
}

}  // namespace sheaf
