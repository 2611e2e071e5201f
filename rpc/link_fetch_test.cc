// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_fetch.h"

#include <catch2/catch.hpp>

#include "rpc/link_wire.h"

namespace sheaf {
namespace link_fetch_test {

std::string PayloadOf(BlockParts& parts) {
  const BlockParts::Part part = parts.Next();
  return part.front + std::string(part.bytes);
}

TEST_CASE("a block goes in parts and comes together again") {
  const size_t size = GENERATE(0, 1, 1000, 128 * 1024, 1'000'000);
  auto bytes = std::make_shared<std::string>(size, 'b');
  if (size > 0) bytes->back() = 'e';
  const std::weak_ptr<std::string> watch = bytes;
  BlockParts parts(7, Block{"head", {bytes->data(), bytes->size()}, bytes});
  const std::string want = *bytes;
  bytes = nullptr;
  BlockAssembly assembly;
  while (!parts.done()) {
    CHECK_FALSE(assembly.complete());
    const std::string payload = PayloadOf(parts);
    CHECK(payload.size() <= kPieceBytes);
    const auto header = BlockAssembly::Parse(payload);
    REQUIRE(header.ok());
    CHECK(header->number == 7);
    REQUIRE(assembly.Add(*header, payload).ok());
  }
  CHECK(watch.expired());  // Nothing holds what has left.
  REQUIRE(assembly.complete());
  const auto block = assembly.Take();
  REQUIRE(block.ok());
  CHECK((*block)->head() == "head");
  REQUIRE((*block)->size() == size);
  std::string got(size, '\0');
  REQUIRE((*block)->CopyTo({got.data(), got.size()}).ok());
  CHECK(got == want);
}

TEST_CASE("a reason goes instead of a block") {
  BlockParts parts(1, absl::NotFoundError("gone"));
  const std::string payload = PayloadOf(parts);
  CHECK(parts.done());
  BlockAssembly assembly;
  REQUIRE(assembly.Add(*BlockAssembly::Parse(payload), payload).ok());
  REQUIRE(assembly.complete());
  CHECK(assembly.Take().status() == absl::NotFoundError("gone"));
}

TEST_CASE("a part that was changed on its way is found when the block is whole") {
  const std::string bytes(300'000, 'b');
  BlockParts parts(1, Block{"", {bytes.data(), bytes.size()}, nullptr});
  BlockAssembly assembly;
  for (int which = 0; !parts.done(); ++which) {
    std::string payload = PayloadOf(parts);
    if (which == 2) payload.back() = 'c';
    REQUIRE(assembly.Add(*BlockAssembly::Parse(payload), payload).ok());
  }
  REQUIRE(assembly.complete());
  CHECK(absl::IsDataLoss(assembly.Take().status()));
}

TEST_CASE("parts that do not follow each other are refused") {
  CHECK_FALSE(BlockAssembly::Parse("short").ok());
  CHECK_FALSE(ParseFetch("short").ok());
  const std::string bytes(300'000, 'b');
  BlockParts parts(1, Block{"", {bytes.data(), bytes.size()}, nullptr});
  std::vector<std::string> payloads;
  while (!parts.done()) payloads.push_back(PayloadOf(parts));
  REQUIRE(payloads.size() == 4);
  const auto add = [&](BlockAssembly& assembly, size_t which) {
    return assembly.Add(*BlockAssembly::Parse(payloads[which]), payloads[which]).ok();
  };
  BlockAssembly assembly;
  CHECK_FALSE(add(assembly, 1));
  CHECK(add(assembly, 0));
  CHECK_FALSE(add(assembly, 2));
  CHECK(add(assembly, 1));
  CHECK_FALSE(add(assembly, 1));
  CHECK_FALSE(add(assembly, 0));
  CHECK(add(assembly, 2));
  CHECK_FALSE(assembly.complete());
}

}  // namespace link_fetch_test
}  // namespace sheaf
