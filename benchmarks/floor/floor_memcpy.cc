// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Copying a large value into shared memory: onto pages never touched and onto warm ones, with one
// thread and with two. What a put of a large value costs at least.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "figures.h"

namespace {

// A shared mapping of `size` bytes that nobody has touched.
class Segment {
 public:
  explicit Segment(size_t size) : size_(size), fd_(memfd_create("floor", MFD_CLOEXEC)) {
    floors::Require(fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(size)) == 0, "memfd");
    data_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    floors::Require(data_ != MAP_FAILED, "mmap");
  }
  Segment(const Segment&) = delete;
  ~Segment() {
    munmap(data_, size_);
    close(fd_);
  }
  char* data() { return data_; }

 private:
  const size_t size_;
  const int fd_;
  char* data_;
};

// Seconds for one copy by `threads` threads.
double Copy(char* to, const char* from, size_t size, int threads) {
  const double start = floors::NowSeconds();
  if (threads == 1) {
    std::memcpy(to, from, size);
  } else {
    const size_t half = size / 2 / 4096 * 4096;
    std::thread second([&] { std::memcpy(to + half, from + half, size - half); });
    std::memcpy(to, from, half);
    second.join();
  }
  const double took = floors::NowSeconds() - start;
  floors::Require(
      to[0] == from[0] && to[size / 2] == from[size / 2] && to[size - 1] == from[size - 1], "copy");
  return took;
}

void Measure(const char* size_name, const char* from, size_t size, int threads, double seconds) {
  std::vector<double> cold, warm;
  const double end = floors::NowSeconds() + seconds;
  while (cold.size() < 3 || floors::NowSeconds() < end) {
    Segment segment(size);
    cold.push_back(static_cast<double>(size) / Copy(segment.data(), from, size, threads) / 1e9);
    for (int i = 0; i < 3; ++i) {
      warm.push_back(static_cast<double>(size) / Copy(segment.data(), from, size, threads) / 1e9);
    }
  }
  const std::string end_of_name =
      std::string(size_name) + (threads == 1 ? "_1_thread" : "_2_threads");
  floors::Print(("floor_memcpy_cold_" + end_of_name).c_str(), "GB/s", floors::Median(cold));
  floors::Print(("floor_memcpy_warm_" + end_of_name).c_str(), "GB/s", floors::Median(warm));
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  constexpr size_t kLarge = 800'000'000;
  auto from = std::make_unique<char[]>(kLarge);
  for (size_t i = 0; i < kLarge; i += 512) from[i] = static_cast<char>(i / 512);
  for (int threads : {1, 2}) {
    Measure("100mb", from.get(), 100'000'000, threads, seconds);
    Measure("800mb", from.get(), kLarge, threads, seconds);
  }
}
