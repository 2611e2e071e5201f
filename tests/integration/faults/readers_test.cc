// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Row 37: a reader with a zero-copy view is stopped, or killed, while the owner frees the object
// and others refill the store.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "tests/integration/faults/oracle.h"

namespace faults {
namespace {

constexpr size_t kCount = 500'000;  // 4 MB, of a store of 64 MiB.

class ReadersHolder {
 public:
  ReadersHolder() = default;
  // Keeps a view of `values`; its address in this process.
  uint64_t Hold(sheaf::Array<uint64_t> values) {
    view_ = std::move(values);
    return reinterpret_cast<uint64_t>(view_.data());
  }
  bool StillRight(uint64_t id) const { return AreValues(view_.span(), id, kCount); }
  void Drop() { view_ = {}; }
  int Pid() const { return getpid(); }

 private:
  sheaf::Array<uint64_t> view_;
};

SHEAF_ACTOR(ReadersHolder, sheaf::Constructor<>, &ReadersHolder::Hold, &ReadersHolder::StillRight,
            &ReadersHolder::Drop, &ReadersHolder::Pid);

// Fills the store with other values, again and again; returns how many objects that took.
uint64_t Refill(Clock::duration duration, uint64_t base, const std::function<void()>& between) {
  const auto end = Clock::now() + duration;
  uint64_t made = 0;
  std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> refs;
  while (Clock::now() < end) {
    std::string error;
    auto ref = PutWithin(base + made, kCount, 10s, &error);
    INFO(error);
    REQUIRE(ref.has_value());
    ++made;
    refs.push_back(*ref);
    if (refs.size() == 8) {
      for (uint64_t i = 0; i < refs.size(); ++i) {
        CHECK(AreValues(sheaf::Get(sheaf::ObjectRef<sheaf::Array<uint64_t>>(refs[i]), 20s),
                        base + made - 8 + i, kCount));
      }
      refs.clear();
      between();
    }
  }
  return made;
}

}  // namespace

TEST_CASE(
    "row 37: the view of a stopped reader keeps its bytes; of a dead one the memory comes back",
    "[row37]") {
  NodeOptions options;
  options.store_bytes = 64 << 20;
  Node node(options);
  auto holder = sheaf::Actor<ReadersHolder>().Remote();
  const pid_t pid = sheaf::Get(holder.Task(&ReadersHolder::Pid).Remote(), 20s);
  std::string error;
  auto ref = PutWithin(seed, kCount, 10s, &error);
  REQUIRE(ref.has_value());
  const uint64_t address = sheaf::Get(
      holder.Task(&ReadersHolder::Hold).Remote(sheaf::ObjectRef<sheaf::Array<uint64_t>>(*ref)),
      20s);
  REQUIRE(kill(pid, SIGSTOP) == 0);
  ref.reset();  // The owner frees it.
  uint64_t looks = 0;
  bool changed = false;
  const int memory = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  const auto look = [&] {  // Through the stopped process's own mapping.
    std::vector<uint64_t> bytes(kCount);
    const size_t size = kCount * sizeof(uint64_t);
    if (pread(memory, bytes.data(), size, static_cast<off_t>(address)) !=
        static_cast<ssize_t>(size))
      return;
    ++looks;
    changed = changed || !AreValues(bytes, seed, kCount);
  };
  const uint64_t made = Refill(std::chrono::seconds(Count(3, 60)), seed + 1, look);
  close(memory);
  CHECK_FALSE(changed);
  REQUIRE(kill(pid, SIGCONT) == 0);
  CHECK(sheaf::Get(holder.Task(&ReadersHolder::StillRight).Remote(seed), 20s));
  sheaf::Get(holder.Task(&ReadersHolder::Drop).Remote(), 20s);

  // The other end of it: dead while it holds a view, its memory is used again.
  ref = PutWithin(seed + 7, kCount, 10s, &error);
  REQUIRE(ref.has_value());
  sheaf::Get(
      holder.Task(&ReadersHolder::Hold).Remote(sheaf::ObjectRef<sheaf::Array<uint64_t>>(*ref)),
      20s);
  REQUIRE(kill(pid, SIGSTOP) == 0);
  ref.reset();
  REQUIRE(kill(pid, SIGKILL) == 0);
  holder = {};
  node.RequireQuiet();
  std::ostringstream words;
  words << "stopped for " << Count(3, 60) << " s, " << made << " objects ("
        << made * kCount / 131'072
        << " MiB) through a store of 64 MiB meanwhile, its view looked at " << looks
        << " times and never changed";
  Figures("37", words.str());
}

}  // namespace faults
