// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/machine_memory.h"

#include <catch2/catch.hpp>

#include <fstream>

#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace machine_memory_test {

// A machine made of files.
class FakeMachine {
 public:
  FakeMachine() {
    Set("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n");
  }
  void Set(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  MachineMemory Read() const { return ReadMachineMemory(directory_.path() + "/"); }

 private:
  ScratchDirectory directory_;
};

TEST_CASE("without control groups the machine is the limit") {
  FakeMachine machine;
  CHECK(machine.Read().limit_bytes == 1000 * 1024);
  CHECK(machine.Read().available_bytes == 600 * 1024);
}

TEST_CASE("version 2: the tightest group on the way up counts, cache is available") {
  FakeMachine machine;
  machine.Set("proc/self/cgroup", "0::/pod/box\n");
  machine.Set("sys/fs/cgroup/pod/box/memory.max", "max\n");
  machine.Set("sys/fs/cgroup/pod/box/memory.current", "100\n");
  machine.Set("sys/fs/cgroup/pod/memory.max", "500000\n");
  machine.Set("sys/fs/cgroup/pod/memory.current", "400000\n");
  machine.Set("sys/fs/cgroup/pod/memory.stat", "anon 7\ninactive_file 20000\nfile 9\n");
  CHECK(machine.Read().limit_bytes == 500'000);
  CHECK(machine.Read().available_bytes == 120'000);
}

TEST_CASE("version 1 beside an empty version 2") {
  FakeMachine machine;
  machine.Set("proc/self/cgroup", "9:name=systemd:/\n4:memory:/box\n0::/\n");
  machine.Set("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "300000\n");
  machine.Set("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "250000\n");
  machine.Set("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.Set("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  CHECK(machine.Read().limit_bytes == 300'000);
  CHECK(machine.Read().available_bytes == 50'000);
}

TEST_CASE("a group that is over its limit has nothing left") {
  FakeMachine machine;
  machine.Set("proc/self/cgroup", "0::/box\n");
  machine.Set("sys/fs/cgroup/box/memory.max", "1000\n");
  machine.Set("sys/fs/cgroup/box/memory.current", "2000\n");
  CHECK(machine.Read().available_bytes == 0);
}

TEST_CASE("this machine can be read") {
  CHECK(ReadMachineMemory().limit_bytes > 0);
  CHECK(ReadMachineMemory().available_bytes > 0);
}

}  // namespace machine_memory_test
}  // namespace sheaf
