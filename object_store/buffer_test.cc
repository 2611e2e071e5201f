// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "object_store/parallel_copy.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace buffer_test {

TEST_CASE("a heap buffer holds its bytes as long as a slice lives") {
  Buffer whole = Buffer::FromString(Pattern(1000, 1));
  Buffer part = whole.Slice(10, 20);
  Buffer tail = whole.Slice(990, 100);
  CHECK(tail.size() == 10);
  CHECK(whole.Slice(2000).empty());
  whole = Buffer();
  CHECK(part.view() == Pattern(1000, 1).substr(10, 20));
  CHECK(tail.view() == Pattern(1000, 1).substr(990));
}

TEST_CASE("a copied buffer is aligned to a cache line; an empty one is fine") {
  const Buffer copy = Buffer::CopyOf("abc");
  CHECK(reinterpret_cast<uintptr_t>(copy.data()) % 64 == 0);
  CHECK(copy.view() == "abc");
  CHECK(Buffer::CopyOf("").empty());
  CHECK(Buffer().view().empty());
}

TEST_CASE("memory on the heap is written in place, then frozen") {
  MutableBuffer building = MutableBuffer::OnHeap(100);
  CHECK(reinterpret_cast<uintptr_t>(building.data()) % 64 == 0);
  CHECK_FALSE(building.in_arena());
  std::memset(building.data(), 'x', 100);
  const Buffer frozen = std::move(building).Freeze();
  CHECK(frozen.view() == std::string(100, 'x'));
  MutableBuffer::OnHeap(5);  // Dropped: no leak (the sanitizer tells).
}

TEST_CASE("views are copied and dropped on many threads while the client goes on") {
  StoreNode node(16 * kMiB);
  const ProcessId writer = node.Attach(1);
  const ProcessId reader = node.Attach(2);
  const auto location = node.Put(writer, IdOf(writer, 1), Pattern(70'000, 1));
  REQUIRE(location.ok());
  for (int round = 0; round < 50; ++round) {
    Buffer view = node.store(reader).Get(IdOf(writer, 1), *location)->bytes;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([copy = view]() mutable {
        for (int k = 0; k < 200; ++k) Buffer(copy).Slice(k, 10);
        copy = Buffer();
      });
    }
    view = Buffer();
    for (int k = 0; k < 100; ++k) {
      const auto again = node.store(reader).Get(IdOf(writer, 1), *location);
      REQUIRE(again.ok());
      REQUIRE(again->bytes.data()[k] == static_cast<std::byte>(Pattern(70'000, 1)[k]));
    }
    for (std::thread& thread : threads) thread.join();
  }
  node.store(reader).Get(IdOf(writer, 1), *location).IgnoreError();
  CHECK(node.store(reader).stats().views <= 1);
  node.store(writer).Free(IdOf(writer, 1), *location);
  node.Flush();
  node.Advance(kSecond);
  CHECK(node.server->Stats().pinned_bytes == 0);
  CHECK(node.server->Stats().objects == 0);
}

TEST_CASE("copies by several threads are whole, whatever the size and however many at once") {
  const size_t size = GENERATE(0, 1, 2 * kMiB, 2 * kMiB + 1, 17 * kMiB + 3);
  const std::string source = Pattern(size, 5);
  std::vector<std::string> copies(3, std::string(size, '\0'));
  std::vector<std::thread> threads;
  for (std::string& copy : copies) {
    threads.emplace_back([&] { ParallelCopyWith(3, copy.data(), source.data(), size); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& copy : copies) CHECK(copy == source);
  std::string copy(size, '\0');
  ParallelCopy(copy.data(), source.data(), size);
  CHECK(copy == source);
}

TEST_CASE("a copy to cold memory is whole and touches nothing beside it") {
  const size_t size = GENERATE(1, 2 * kMiB + 1, 17 * kMiB + 3);
  const size_t before = 3 * kPageBytes + 64;
  const size_t mapped = before + size + kPageBytes;
  auto* memory = static_cast<char*>(
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  memory[before - 1] = 'a';
  memory[before + size] = 'b';
  const std::string source = Pattern(size, 7);
  ParallelCopy(memory + before, source.data(), size, Pages::kCold);
  CHECK(std::string_view(memory + before, size) == source);
  CHECK(memory[before - 1] == 'a');
  CHECK(memory[before + size] == 'b');
  munmap(memory, mapped);
}

// How many of them this process's page table has.
size_t PagesEntered(const MutableBuffer& buffer) {
  const size_t count = (buffer.size() + kPageBytes - 1) / kPageBytes;
  std::vector<uint64_t> entries(count);
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  const auto first = reinterpret_cast<uintptr_t>(buffer.data()) / kPageBytes;
  REQUIRE(pread(fd, entries.data(), count * 8, static_cast<off_t>(first * 8)) ==
          static_cast<ssize_t>(count * 8));
  close(fd);
  return static_cast<size_t>(
      std::count_if(entries.begin(), entries.end(), [](uint64_t entry) { return entry >> 63; }));
}

TEST_CASE("memory that this process has not written to before is readied for it, once") {
  StoreNode node(64 * kMiB);
  const ProcessId writer = node.Attach(1);
  const size_t pages = 16 * kMiB / kPageBytes;
  absl::StatusOr<MutableBuffer> buffer =
      node.Create(writer, {.id = IdOf(writer, 1), .size_bytes = 16 * kMiB});
  REQUIRE(buffer.ok());
  CHECK(PagesEntered(*buffer) == 0);
  MutableBuffer moved = *std::move(buffer);
  moved.Warm();
  CHECK(PagesEntered(moved) == pages);
  moved = {};  // Unsealed: its memory serves the next.
  buffer = node.Create(writer, {.id = IdOf(writer, 2), .size_bytes = 16 * kMiB});
  REQUIRE(buffer.ok());
  CHECK(PagesEntered(*buffer) == pages);
  REQUIRE(madvise(buffer->data(), 16 * kMiB, MADV_DONTNEED) == 0);
  buffer->Warm();
  CHECK(PagesEntered(*buffer) == 0);  // It is warm, as far as the client knows.
}

}  // namespace buffer_test
}  // namespace sheaf
