// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Frames of the object store: from processes to the raylet's half, and from it to theirs.
#include <filesystem>

#include "object_store/store_node_for_test.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds;
  for (uint8_t kind = 128; kind < 144; ++kind) {
    for (const size_t size : {8, 16, 24, 32, 48, 64}) {
      std::string body(size, '\0');
      for (size_t i = 0; i < size; i += 8) body[i] = static_cast<char>(1 + i / 8);
      seeds.push_back(FrameOf(kind % 2, kind, body));
    }
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static StoreNode* node = nullptr;
  static ProcessId processes[2];
  static int used = 0;
  if (used++ % 300 == 0) {
    delete node;
    node = new StoreNode(4 << 20);
    for (uint32_t i = 0; i < 2; ++i) processes[i] = node->Attach(i + 1);
    const ObjectSpec spec{.id = ObjectId::Make(processes[0], 5, 1), .size_bytes = 1000};
    (void)node->store(processes[0]).Put(spec, std::string(1000, 'x'));
    node->Settle();
  }
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const uint8_t from = input.Byte();
    const auto kind = FrameKind{input.Byte()};
    const std::string body = input.Bytes(input.Short());
    if (from % 4 < 3) {
      node->server->OnFrame(processes[from % 2], kind, body);
    } else {
      node->store(processes[1]).OnFrame(kind, body);
    }
  }
  node->Settle();
  return 0;
}
