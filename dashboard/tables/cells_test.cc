// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/cells.h"

#include <catch2/catch.hpp>

#include "base/ids.h"

namespace sheaf {
namespace cells_test {

TEST_CASE("columns are as wide as their widest cell, numbers stand at the right") {
  const Listing table{{{"NAME", "name"}, {"SIZE", "size_bytes"}, {"WHERE", "where"}},
                      {{TextCell("a"), BytesCell(1536), TextCell("store")},
                       {TextCell("longer"), BytesCell(5), TextCell("disk")}}};
  CHECK(table.Text() ==
        "NAME       SIZE  WHERE\n"
        "a       1.5 KiB  store\n"
        "longer      5 B  disk\n");
  CHECK(
      table.Json() ==
      R"([{"name":"a","size_bytes":1536,"where":"store"},{"name":"longer","size_bytes":5,"where":"disk"}])");
}

TEST_CASE("a column without a single value is not shown, but stays in the JSON") {
  const Listing table{{{"ID", "id"}, {"DEATH", "death"}}, {{TextCell("x"), TextCell("")}}};
  CHECK(table.Text() == "ID\nx\n");
  CHECK(table.Json() == R"([{"id":"x","death":""}])");
}

TEST_CASE("an empty table has its titles, and an empty array") {
  const Listing table{{{"ID", "id"}, {"NAME", "name"}}, {}};
  CHECK(table.Text() == "ID  NAME\n");
  CHECK(table.Json() == "[]");
}

TEST_CASE("characters, not bytes, are counted") {
  const Listing table{
      {{"NAME", "name"}, {"X", "x"}},
      {{TextCell("gr\xC3\xBC\xC3\x9F"), TextCell("1")}, {TextCell("abcd"), TextCell("2")}}};
  CHECK(table.Text() == "NAME  X\ngr\xC3\xBC\xC3\x9F  1\nabcd  2\n");
}

TEST_CASE("what users name cannot steer a terminal") {
  CHECK(Printable("red\x1b[31m") == "red?[31m");
  CHECK(Printable("a\nb") == "a?b");
  CHECK(Printable("a\xC2\x9Bz") == "a?z");  // The one-byte escape of Latin-1.
  CHECK(Printable("gr\xC3\xBC\xC3\x9F\xFF") == "gr\xC3\xBC\xC3\x9F?");
}

TEST_CASE("sizes have binary units and one digit behind the point") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(1023) == "1023 B");
  CHECK(FormatBytes(1024) == "1.0 KiB");
  CHECK(FormatBytes(1024 * 1024 - 1) == "1.0 MiB");
  CHECK(FormatBytes(uint64_t{3} << 30) == "3.0 GiB");
  CHECK(FormatBytes(UINT64_MAX) == "16.0 EiB");
}

TEST_CASE("counts are grouped by thousands") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(1234567) == "1,234,567");
}

TEST_CASE("resources come in whole units, CPU first, memory as bytes") {
  proto::Resources resources;
  (*resources.mutable_amounts())["apple"] = 5'000;
  (*resources.mutable_amounts())["memory"] = (int64_t{1} << 30) * 10'000;
  (*resources.mutable_amounts())["GPU"] = 10'000;
  (*resources.mutable_amounts())["CPU"] = 25'000;
  const Cell cell = ResourcesCell(resources);
  CHECK(cell.text == "2.5 CPU, 1 GPU, 0.5 apple, 1.0 GiB memory");
  CHECK(cell.json == R"({"CPU":2.5,"GPU":1,"apple":0.5,"memory":1073741824})");
  CHECK(FormatAmount("CPU", -5'000) == "-0.5");
}

TEST_CASE("what is not there is empty for people and null for programs") {
  CHECK(ProcessCell(0).text.empty());
  CHECK(ProcessCell(0).json == "null");
  CHECK(ProcessCell(ProcessId{3, 17}.packed()).text == "3.17");
  CHECK(IdCell(0).json == "null");
  CHECK(TimeCell(0).json == "null");
  CHECK(TimeCell(1'700'000'000).json == "1700000000");
  CHECK(TimeCell(1'700'000'000).text.size() == 19);
}

}  // namespace cells_test
}  // namespace sheaf
