// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All types beside pyarrow: tests/python/test_arrow.py. Here is what that cannot reach.
#include "arrow/move.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "arrow/arrow_for_test.h"
#include "arrow/partition.h"
#include "arrow/sort_bounds.h"

namespace sheaf::arrow {
namespace {

// Gives memory until so many bytes are out.
class ScarceMemory final : public Memory {
 public:
  explicit ScarceMemory(int64_t bytes) : left_(bytes) {}
  absl::StatusOr<std::shared_ptr<uint8_t>> Allocate(int64_t size_bytes) override {
    if (size_bytes > left_) return absl::ResourceExhaustedError("no memory");
    left_ -= size_bytes;
    return heap_.Allocate(size_bytes);
  }

 private:
  HeapMemory heap_;
  int64_t left_;
};

TEST_CASE("text that 32-bit offsets do not reach becomes large") {
  HeapMemory memory;
  Given given = Texts({"abc", "", "defgh", "i"});
  const Column texts = *Read(given);
  const std::vector<uint32_t> order = {2, 0, 3, 1};
  const std::vector<Array> chunks = {texts.array, texts.array};
  const std::vector<uint32_t> to = {7, 6, 5, 4, 3, 2, 1, 0};
  for (const int64_t most : {int64_t{INT32_MAX}, int64_t{8}}) {
    const MoveOptions options{.narrow_offset_max = most};
    const Layout wanted = most == 8 ? Layout::kLargeBinary : Layout::kBinary;
    const Column gathered = *Gather(texts.field, texts.array, order, memory, options);
    CHECK(gathered.field.layout == wanted);
    CHECK(gathered.field.format == (most == 8 ? "U" : "u"));
    CHECK(TextsOf(gathered) == std::vector<std::string>{"defgh", "abc", "i", ""});
    const Column scattered = *Scatter(texts.field, chunks, to, memory, options);
    CHECK(scattered.field.layout == wanted);
    CHECK(TextsOf(scattered) ==
          std::vector<std::string>{"i", "defgh", "", "abc", "i", "defgh", "", "abc"});
    const Column all = *Concatenate(texts.field, chunks, memory, options);
    CHECK(all.field.layout == wanted);
    CHECK(TextsOf(all) ==
          std::vector<std::string>{"abc", "", "defgh", "i", "abc", "", "defgh", "i"});
  }
}

TEST_CASE("lists become large, and maps, which cannot, are an error that says so") {
  HeapMemory memory;
  const MoveOptions options{.narrow_offset_max = 3};
  for (const char* format : {"+l", "+m"}) {
    Given given(format);
    given.Rows(2).Without().With<int32_t>({0, 2, 4});
    given.children.push_back(Numbers({1, 2, 3, 4}));
    const Column lists = *Read(given);
    const absl::StatusOr<Column> gathered =
        Gather(lists.field, lists.array, std::vector<uint32_t>{1, 0}, memory, options);
    const absl::StatusOr<Column> all =
        Concatenate(lists.field, std::vector<Array>{lists.array}, memory, options);
    CHECK(gathered.ok() == (format[1] == 'l'));
    CHECK(all.ok() == gathered.ok());
    if (!gathered.ok()) {
      CHECK(gathered.status().code() == absl::StatusCode::kResourceExhausted);
      CHECK(all.status().code() == absl::StatusCode::kResourceExhausted);
      continue;
    }
    CHECK(gathered->field.format == "+L");
    CHECK(OffsetAt(gathered->field, gathered->array, 2) == 4);
    CHECK(Load<int32_t>(gathered->array.children[0].data.get(), 0) == 3);
  }
}

TEST_CASE("tables that differ in the width of offsets are put together") {
  HeapMemory memory;
  std::vector<Given> given = {Texts({"a", "b"}), Given("U")};
  given[1].Rows(1, 1).Without().With<int64_t>({0, 1, 3}).With(std::vector<char>{'x', 'y', 'z'});
  std::vector<Table> tables;
  for (Given& one : given) {
    const Column column = *Read(one);
    tables.push_back(*TableFromColumn({column.field, {column.array}}));
  }
  for (int turn = 0; turn < 2; ++turn, std::swap(tables[0], tables[1])) {
    const Table all = *ConcatenateTables(tables, memory);
    const Column column{all.schema.children[0], all.Chunks(0)[0]};
    CHECK(column.field.format == "U");
    CHECK(TextsOf(column) == (turn == 0 ? std::vector<std::string>{"a", "b", "yz"}
                                        : std::vector<std::string>{"yz", "a", "b"}));
  }
}

TEST_CASE("without memory there is an error, and nothing is left") {
  Given given = Texts({"abc", "", "defgh", "i"});
  const Column texts = *Read(given);
  const Table table = *TableFromColumn({texts.field, {texts.array, texts.array}});
  int64_t bytes = 0;
  for (;; ++bytes) {
    ScarceMemory memory(bytes);
    RowNumbers parts(table.rows);
    for (uint32_t& part : parts.span()) part = 0;
    const absl::StatusOr<Parts> made = Partition(table, std::move(parts), 1, memory);
    if (made.ok()) break;
    REQUIRE(made.status().code() == absl::StatusCode::kResourceExhausted);
  }
  CHECK(bytes == (8 + 1) * 4 + 2 * 9);
}

TEST_CASE("a row lies behind each bound that it is not before") {
  HeapMemory memory;
  Given rows = Numbers({5, 1, 3, 2, 9});
  Given ends = Numbers({2, 2, 5});
  const Column keys = *Read(rows);
  const Column bounds = *Read(ends);
  const Table table = *TableFromColumn({keys.field, {keys.array}});
  const Table bound_table = *TableFromColumn({bounds.field, {bounds.array}});
  const std::vector<size_t> columns = {0};
  const SortBounds sorted = *SortBounds::Make(table, columns, bound_table, {false}, memory);
  CHECK(sorted.parts() == 4);
  std::vector<uint32_t> part(5);
  REQUIRE(sorted.Place(table, part.data()).ok());
  CHECK(part == std::vector<uint32_t>{3, 0, 2, 2, 3});
  CHECK(!SortBounds::Make(table, columns, bound_table, {true}, memory).ok());
}

}  // namespace
}  // namespace sheaf::arrow
