// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Loaded in front of the C library (LD_PRELOAD) by fault row 30: another wall clock than the
// machine's, that can jump. The file FAULT_CLOCK holds, as 8 bytes, the nanoseconds by which it is
// ahead. All else, the monotonic clock above all, is left alone.
// Waits until a time of the wall clock follow it as the kernel's do when somebody sets it: one that
// is jumped over ends, one that is moved away lasts longer. It looks at the clock every 20 ms.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSlice = 20'000'000;

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const std::atomic<int64_t>* MapOffset() {
  const char* path = std::getenv("FAULT_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(page);
}

int64_t Offset() {
  static const std::atomic<int64_t>* const offset = MapOffset();
  return offset == nullptr ? 0 : offset->load(std::memory_order_relaxed);
}

int64_t NanosOf(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
timespec TimeOf(int64_t nanos) { return {nanos / kSecond, nanos % kSecond}; }

using GetTime = int (*)(clockid_t, timespec*);

int RealGetTime(clockid_t clock, timespec* time) {
  static const auto real = Next<GetTime>("clock_gettime");
  return real(clock, time);
}

int64_t MachineNow() {
  timespec now;
  RealGetTime(CLOCK_REALTIME, &now);
  return NanosOf(now);
}

// Until when to wait now, by the machine's clock, for what should last until `deadline`.
timespec SliceEnd(const timespec& deadline) {
  return TimeOf(
      std::max<int64_t>(0, std::min(NanosOf(deadline) - Offset(), MachineNow() + kSlice)));
}
bool IsReached(const timespec& deadline) { return MachineNow() + Offset() >= NanosOf(deadline); }

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = RealGetTime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    *time = TimeOf(NanosOf(*time) + Offset());
  }
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  const int64_t now = MachineNow() + Offset();
  *time = {now / kSecond, now % kSecond / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t now = (MachineNow() + Offset()) / kSecond;
  if (out != nullptr) *out = now;
  return now;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto real = Next<Wait>("pthread_cond_clockwait");
  if (clock != CLOCK_REALTIME) return real(condition, mutex, clock, deadline);
  const timespec end = SliceEnd(*deadline);
  const int result = real(condition, mutex, clock, &end);
  return result == ETIMEDOUT && !IsReached(*deadline) ? 0 : result;  // Woken for no reason.
}

// What abseil, and so gRPC, waits with.
long syscall(long number, ...) noexcept {
  using Call = long (*)(long, ...);
  static const auto real = Next<Call>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto* deadline = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || deadline == nullptr) {
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  while (true) {
    const timespec end = SliceEnd(*deadline);
    const long result = real(number, a[0], a[1], a[2], &end, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || IsReached(*deadline)) return result;
  }
}

}  // extern "C"
