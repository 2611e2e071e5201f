// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/array.h"

#include <catch2/catch.hpp>

#include <string>

#include "arrow/arrow_for_test.h"
#include "arrow/table.h"

namespace sheaf::arrow {
namespace {

std::string WordsOf(Given given) {
  const absl::StatusOr<Column> column = Read(given);
  REQUIRE(!column.ok());
  CHECK(column.status().code() == absl::StatusCode::kDataLoss);
  return std::string(column.status().message());
}

TEST_CASE("an array that is malformed is an error that names its column and what is wrong") {
  using Catch::Contains;
  CHECK_THAT(WordsOf(Numbers({1, 2}).Rows(-1)), Contains("'c'") && Contains("-1 rows"));
  CHECK_THAT(WordsOf(Numbers({1, 2}).Rows(2, -1)), Contains("from row -1"));
  CHECK_THAT(WordsOf(Numbers({1, 2}).Rows(INT64_MAX, INT64_MAX)), Contains("rows from row"));
  CHECK_THAT(WordsOf(Numbers({1, 2}).With<int>({})), Contains("3 buffers, of 2"));
  CHECK_THAT(WordsOf(Given("i").Rows(2).Without().Without()), Contains("no values"));
  CHECK_THAT(WordsOf(Given("u").Rows(2).Without().Without().Without()), Contains("no offsets"));
  CHECK_THAT(WordsOf(Given("u").Rows(1).Without().With<int32_t>({0, 3}).Without()),
             Contains("no bytes"));
  const auto text = [](std::vector<int32_t> offsets) {
    return Given("z").Rows(2).Without().With(std::move(offsets)).With(std::vector<char>(9, 'a'));
  };
  CHECK_THAT(WordsOf(text({0, 5, 3})), Contains("offsets are negative, fall"));
  CHECK_THAT(WordsOf(text({-4, 0, 1})), Contains("offsets are negative, fall"));

  Given few_nulls = Numbers({1, 2});
  few_nulls.array.null_count = 3;
  CHECK_THAT(WordsOf(few_nulls), Contains("3 of 2 are NULL"));
  few_nulls.array.null_count = 1;
  CHECK_THAT(WordsOf(few_nulls), Contains("no bits say which"));
}

TEST_CASE("children have the rows that their parents speak of") {
  using Catch::Contains;
  Given structs("+s");
  structs.Rows(3).Without();
  structs.children.push_back(Numbers({1, 2}, "part"));
  CHECK_THAT(WordsOf(structs), Contains("'part' has 2 rows of 3"));

  Given lists("+l");
  lists.Rows(1).Without().With<int32_t>({0, 3});
  lists.children.push_back(Numbers({1, 2}));
  CHECK_THAT(WordsOf(lists), Contains("lead out of its values"));

  Given fixed("+w:2");
  fixed.Rows(2).Without();
  fixed.children.push_back(Numbers({1, 2, 3}));
  CHECK_THAT(WordsOf(fixed), Contains("2 lists in 3 values"));

  Given encoded = Numbers({0});
  encoded.dictionary = std::make_shared<Given>(Texts({"a"}));
  encoded.Schema();
  const absl::StatusOr<Field> field = ReadField(encoded.schema);
  encoded.dictionary.reset();
  CHECK(!ReadArray(*field, *encoded.Array(), nullptr).ok());
}

TEST_CASE("a schema that is malformed is an error, and a type that is unknown is none") {
  using Catch::Contains;
  CHECK_THAT(WordsOf(Given("w:-3")), Contains("width"));
  CHECK_THAT(WordsOf(Given("w:99999999999")), Contains("width"));
  CHECK_THAT(WordsOf(Given("d:5")), Contains("decimal"));
  CHECK_THAT(WordsOf(Given("d:5,2,24")), Contains("decimal"));
  CHECK_THAT(WordsOf(Given("+l")), Contains("0 children, which has 1"));
  Given parent("i");
  parent.children.push_back(Numbers({1}));
  CHECK_THAT(WordsOf(parent), Contains("1 children, which has 0"));
  for (const char* format : {"vu", "+vl", "+r", "+us:0", "ts", "tsx:", "", "?"}) {
    Given unknown(format);
    CHECK(ReadField(*unknown.Schema())->layout == Layout::kOther);
  }
  Given deep("i");
  for (int i = 0; i < 100; ++i) {
    Given list("+l");
    list.children.push_back(std::move(deep));
    deep = std::move(list);
  }
  CHECK_THAT(WordsOf(std::move(deep)), Contains("deeper than 64"));
}

TEST_CASE("what is exported can be read again, and is released by whoever has it") {
  Given given("+s");
  given.Rows(2, 1).Without();
  given.children.push_back(Texts({"x", "one", "two"}));
  const absl::StatusOr<Column> column = Read(given);
  REQUIRE(column.ok());
  ArrowSchema schema;
  ArrowArray array;
  WriteField(column->field, &schema);
  WriteArray(column->field, column->array, &array);
  ArrowArray child = *array.children[0];  // A reader may take one child alone.
  array.children[0]->release = nullptr;
  array.release(&array);
  CHECK(array.release == nullptr);
  CHECK(child.length == 3);
  CHECK(std::string(static_cast<const char*>(child.buffers[2]), 7) == "xonetwo");
  child.release(&child);
  const absl::StatusOr<Field> again = ReadField(schema);
  CHECK(SameType(*again, column->field));
  schema.release(&schema);
}

TEST_CASE("bits are copied and counted from and to any place") {
  const uint8_t bits[] = {0b10110101, 0b01101110, 0b11110000, 0b10101011};
  for (int64_t from = 0; from < 9; ++from) {
    for (int64_t to = 0; to < 9; ++to) {
      uint8_t out[4] = {};
      CopyBits(bits, from, 20, out, to);
      int64_t ones = 0;
      for (int64_t i = 0; i < 20; ++i) {
        CHECK(GetBit(out, to + i) == GetBit(bits, from + i));
        ones += GetBit(bits, from + i);
      }
      CHECK(CountOnes(bits, from, 20) == ones);
      CHECK(CountOnes(out, 0, 32) == ones);  // Nothing beside them.
    }
  }
}

}  // namespace
}  // namespace sheaf::arrow
