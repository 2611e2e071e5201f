// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Parts of spilled objects: read by blocks, each of which is checked by itself.
#include <catch2/catch.hpp>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "object_store/server/spill.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace spill_blocks_test {

SCENARIO("any part of an object is read back from a spill file") {
  ScratchDirectory directory;
  auto spill = FileSpill::Open({.directory = directory.path() + "/spill", .min_free_bytes = 0});
  REQUIRE(spill.ok());
  const std::string one = Pattern(1000, 1);
  const std::string two = Pattern(300'000, 2);
  const std::vector pieces{std::as_bytes(std::span(one)), std::as_bytes(std::span(two))};
  const auto records = (*spill)->Write(5, pieces);
  REQUIRE(records.ok());
  std::string back;
  const auto read = [&](uint64_t from, uint64_t bytes) {
    back.assign(bytes, '\0');
    return (*spill)->Read((*records)[1], from, std::as_writable_bytes(std::span(back)));
  };
  constexpr uint64_t kBlock = SpillRecord::kBlockBytes;
  THEN("over the borders of blocks") {
    const std::vector<std::pair<uint64_t, uint64_t>> ranges = {
        {0, 1},      {0, kBlock},  {17, 1000},   {kBlock - 1, 2},
        {kBlock, 5}, {5, 299'990}, {299'999, 1}, {kBlock, 300'000 - kBlock}};
    for (const auto& [from, bytes] : ranges) {
      CAPTURE(from, bytes);
      REQUIRE(read(from, bytes).ok());
      CHECK(back == two.substr(from, bytes));
    }
  }
  THEN("a flipped bit is the loss of the parts in its block alone") {
    std::fstream stream((*spill)->PathOf(5), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(1000 + 290'000);
    stream.put(static_cast<char>(two[290'000] ^ 4));
    stream.close();
    CHECK(read(0, 1000).ok());
    CHECK(absl::IsDataLoss(read(299'000, 1000)));
    CHECK(absl::IsDataLoss(read(0, 300'000)));
  }
}

}  // namespace spill_blocks_test
}  // namespace sheaf
