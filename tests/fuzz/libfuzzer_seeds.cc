// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// With libFuzzer's main: puts the target's seeds into the corpus folder, its first argument that is
// no flag.
#include <fstream>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string word = (*argv)[i];
    if (word.empty() || word[0] == '-') continue;
    int number = 0;
    for (const std::string& seed : fuzz::Seeds()) {
      std::ofstream(word + "/seed-" + std::to_string(number++), std::ios::binary)
          .write(seed.data(), static_cast<std::streamsize>(seed.size()));
    }
    break;
  }
  return 0;
}
