// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Files of spilled objects that somebody has changed: the right bytes come back, or an error, never
// others.
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "object_store/server/spill.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

constexpr size_t kObject = 500;

std::string Directory() {
  // Never destroyed: it is still read at exit.
  static const std::string& path = *new std::string([] {
    char name[] = "/tmp/sheaf-fuzz-XXXXXX";
    std::string made = mkdtemp(name);
    atexit([] { std::filesystem::remove_all(Directory()); });
    return made;
  }());
  return path;
}

}  // namespace

// An input is the file: two objects of kObject bytes.
std::vector<std::string> fuzz::Seeds() {
  return {std::string(kObject, 'a') + std::string(kObject, 'b')};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto spill = *FileSpill::Open({.directory = Directory(), .min_free_bytes = 0});
  static const std::string first(kObject, 'a'), second(kObject, 'b');
  static const std::vector<SpillRecord> records = [] {
    const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(first)),
                                                 std::as_bytes(std::span(second))};
    return *spill->Write(1, pieces);
  }();
  const std::string path = Directory() + "/objects-1";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (size_t i = 0; i < records.size(); ++i) {
    std::string bytes(kObject, '\0');
    const absl::Status read = spill->Read(records[i], 0, std::as_writable_bytes(std::span(bytes)));
    FUZZ_CHECK(read.ok() ? bytes == (i == 0 ? first : second) : absl::IsDataLoss(read));
  }
  return 0;
}
