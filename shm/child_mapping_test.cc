// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/child_mapping.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "shm/segment.h"

namespace sheaf {
namespace {

// How a forked child that runs `run` ends: as waitpid says.
int InChild(const std::function<bool()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(run() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

struct Memory {
  UniqueFd fd = *MakeSegment("test", 2 * kPageBytes);
  Mapping mapping = *Mapping::Map(fd.get(), 0, 2 * kPageBytes, Access::kReadWrite);
  char* bytes = reinterpret_cast<char*>(mapping.data());
};

}  // namespace

SCENARIO("a forked child reads shared memory and writes only its own copy") {
  Memory memory;
  memory.bytes[0] = 'p';
  const auto child = [&] {
    if (memory.bytes[0] != 'p') return false;
    memory.bytes[0] = 'c';
    // Its own children have what it wrote, and do not disturb it either.
    if (InChild([&] { return std::exchange(memory.bytes[0], 'g') == 'c'; }) != 0) return false;
    return memory.bytes[0] == 'c';
  };
  SECTION("by itself it writes its parent's") {
    InChild(child);
    CHECK(memory.bytes[0] != 'p');
  }
  SECTION("with a mapping for children it does not") {
    const ChildMapping mapping =
        ChildMapping::Copy(memory.mapping.data(), memory.mapping.size(), memory.fd.get());
    CHECK(InChild(child) == 0);
    CHECK(memory.bytes[0] == 'p');
  }
}

SCENARIO("a forked child faults where there is nothing for it, and may unmap that") {
  Memory memory;
  {
    const ChildMapping mapping =
        ChildMapping::Nothing(memory.mapping.data(), memory.mapping.size());
    const int touched = InChild([&] { return memory.bytes[0] == 0; });
    CHECK((WIFSIGNALED(touched) && WTERMSIG(touched) == SIGSEGV));
    CHECK(InChild([&] {
            memory.mapping = Mapping();
            return true;
          }) == 0);
    memory.bytes[0] = 'p';
  }
  CHECK(InChild([&] { return memory.bytes[0] == 'p'; }) == 0);
}

}  // namespace sheaf
