// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Room that processes hold and do not use, when others need it.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace room_test {

SCENARIO("what live processes hold and do not use is found when somebody needs it") {
  // Nothing can be spilled.
  StoreNode node(16 * kMiB, {}, /*min_free_disk_bytes=*/uint64_t{1} << 60);
  constexpr size_t kValue = 100 * 1024;
  constexpr int kProcesses = 8;
  struct Value {
    ProcessId owner;
    ObjectId id;
    ObjectLocation location;
    uint64_t seed = 0;
  };
  std::vector<Value> live;
  uint64_t sequence = 0;
  const auto put = [&](ProcessId process) -> absl::Status {
    const ObjectId id = IdOf(process, ++sequence);
    const auto location = node.Put(process, id, Pattern(kValue, sequence), {.wait = kSecond});
    if (location.ok()) live.push_back({process, id, *location, sequence});
    return location.status();
  };
  const auto check = [&] {
    for (const Value& value : live) {
      const auto object = node.store(value.owner).Get(value.id, value.location);
      REQUIRE(object.status() == absl::OkStatus());
      CHECK(object->bytes.view() == Pattern(kValue, value.seed));
    }
  };
  const auto free_all_but_each = [&](size_t nth) {
    std::vector<Value> kept;
    for (size_t i = 0; i < live.size(); ++i) {
      if (i % nth == 0) {
        kept.push_back(live[i]);
      } else {
        node.store(live[i].owner).Free(live[i].id, live[i].location);
      }
    }
    live = std::move(kept);
    node.Flush();
  };
  std::vector<ProcessId> processes;
  for (uint32_t i = 1; i <= kProcesses; ++i) processes.push_back(node.Attach(i));
  const uint64_t used_before = node.server->Stats().used_bytes;
  // Each fills extents to the last byte of the store, then all but a few values go.
  for (bool full = false; !full;) {
    for (const ProcessId process : processes) full = full || !put(process).ok();
  }
  REQUIRE(node.server->Stats().object_bytes > 12 * kMiB);
  free_all_but_each(4);
  const uint64_t kept_bytes = node.server->Stats().object_bytes;
  REQUIRE(kept_bytes < 5 * kMiB);

  WHEN("one process needs most of the rest") {
    size_t more = 0;
    while (put(processes[0]).ok()) ++more;
    THEN("it gets it") { CHECK(kept_bytes + more * kValue > 12 * kMiB); }
    check();
  }
  WHEN("a value is being written in each extent") {
    std::vector<MutableBuffer> unsealed;
    for (const ProcessId process : processes) {
      auto buffer = node.Create(process, {.id = IdOf(process, ++sequence), .size_bytes = kValue});
      if (!buffer.ok()) continue;
      std::memset(buffer->data(), 1, kValue);
      unsealed.push_back(*std::move(buffer));
    }
    REQUIRE(unsealed.size() == kProcesses);
    THEN("its bytes are its own until it is sealed, and afterwards") {
      while (put(processes[0]).ok()) {
      }
      for (MutableBuffer& buffer : unsealed) {
        CHECK(std::string_view(reinterpret_cast<const char*>(buffer.data()), kValue) ==
              std::string(kValue, 1));
      }
      const ObjectId id = node.store(processes[1]).IdOf(unsealed[1]);
      const ObjectLocation location = node.store(processes[1]).Seal(std::move(unsealed[1]));
      node.Flush();
      CHECK(node.store(processes[0]).Get(id, location)->bytes.view() == std::string(kValue, 1));
    }
    check();
  }
  WHEN("all values are freed afterwards") {
    for (int i = 0; i < 20; ++i) CHECK(put(processes[i % kProcesses]).ok());
    free_all_but_each(SIZE_MAX);
    live.resize(1);
    node.store(live[0].owner).Free(live[0].id, live[0].location);
    node.Flush();
    for (int i = 0; i < 10; ++i) node.Advance(kSecond);
    THEN("the whole store is free again") {
      CHECK(node.server->Stats().objects == 0);
      CHECK(node.server->Stats().used_bytes == used_before);
    }
  }
  CHECK(node.observer.violations.empty());
}

}  // namespace room_test
}  // namespace sheaf
