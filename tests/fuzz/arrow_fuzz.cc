// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Types and arrays of Arrow that another library in the process gives. How long buffers are the
// interface does not say, so all of them are as long as the longest array here needs, and offsets
// lead anywhere in them, in any order.
#include <algorithm>
#include <array>
#include <list>

#include "arrow/partition.h"
#include "arrow/sort_bounds.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf::arrow;

namespace {

constexpr int64_t kMostRows = 32;
constexpr size_t kBufferBytes = 4096;

// One column and its children.
struct Node {
  std::string format;
  bool is_strange = false;  // Values of that type may need more than the buffers have.
  std::array<std::string, 3> bytes;
  std::array<const void*, 3> buffers{};
  std::vector<ArrowSchema*> schemas;
  std::vector<ArrowArray*> arrays;
  ArrowSchema schema{};
  ArrowArray array{};
};

// What is not negative and below the size of a buffer, most of the time of one byte.
void MakeOffsets(std::string& bytes) {
  for (size_t at = 0; at + 8 <= bytes.size(); at += 4) {
    bytes[at + 1] = static_cast<char>(bytes[at + 1] & 7);
    bytes[at + 2] = 0;
    bytes[at + 3] = 0;
  }
  std::fill(bytes.end() - 8, bytes.end(), '\0');
}

Node& Make(fuzz::Input& input, std::list<Node>& nodes, int depth) {
  static const std::vector<std::string> formats = {
      "n",  "b",  "c",   "S",    "i",     "l",   "e",   "f",         "g",        "u",  "z",
      "U",  "Z",  "w:3", "w:16", "tdD",   "tdm", "ttn", "tsu:",      "tDs",      "+s", "+l",
      "+L", "+m", "vu",  "+w:2", "d:5,2", "tin", "+r",  "d:9,0,256", "d:4,1,32", "w:0"};
  Node& node = nodes.emplace_back();
  const uint8_t which = input.Byte();
  node.is_strange = which >= 250;
  node.format = which < 250 ? formats[which % formats.size()] : input.Bytes(6).c_str();
  const uint8_t odd = input.Byte();  // Bits that make something wrong.
  for (size_t i = 0; i < 3; ++i) {
    node.bytes[i] = input.Bytes(input.Byte());
    node.bytes[i].resize(kBufferBytes);
    node.buffers[i] = (odd >> i & 1) != 0 ? nullptr : node.bytes[i].data();
  }
  const bool is_list = node.format == "+l" || node.format == "+L" || node.format == "+m";
  const bool is_text =
      node.format.size() == 1 && std::string("uzUZ").find(node.format) != std::string::npos;
  if (is_list || is_text) MakeOffsets(node.bytes[1]);
  if (node.format == "U" || node.format == "Z" || node.format == "+L") {
    for (size_t at = 4; at + 4 <= kBufferBytes; at += 8) node.bytes[1].replace(at, 4, 4, '\0');
  }
  int64_t children = node.format[0] == '+' ? (node.format == "+s" ? 2 : 1) : 0;
  if (depth == 0) children = 0;
  for (int64_t i = 0; i < children; ++i) {
    Node& child = Make(input, nodes, depth - 1);
    node.schemas.push_back(&child.schema);
    node.arrays.push_back(&child.array);
  }
  static const std::array<int64_t, 9> buffers = {2, 2, 3, 1, 0, 2, 3, 1, 2};
  int64_t count = is_text ? 3 : node.format == "+s" || node.format[0] == '+' ? 1 : 2;
  if (is_list) count = 2;
  if (node.format == "n") count = 0;
  if ((odd & 64) != 0) count = buffers[odd % buffers.size()];
  node.schema = {node.format.c_str(),
                 "c",
                 nullptr,
                 2,
                 children,
                 node.schemas.data(),
                 nullptr,
                 [](ArrowSchema* schema) { schema->release = nullptr; },
                 nullptr};
  node.array = {input.Byte() % (kMostRows / 2),
                -1,
                input.Byte() % (kMostRows / 2),
                count,
                children,
                node.buffers.data(),
                node.arrays.data(),
                nullptr,
                [](ArrowArray* array) { array->release = nullptr; },
                nullptr};
  if ((odd & 128) != 0) node.array.length = static_cast<int8_t>(input.Byte()) % kMostRows;
  if ((odd & 8) != 0) node.array.null_count = static_cast<int8_t>(input.Byte());
  if ((odd & 16) != 0 && depth > 0) {
    Node& values = Make(input, nodes, 0);
    node.schema.dictionary = &values.schema;
    node.array.dictionary = &values.array;
  }
  return node;
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds;
  for (char which = 0; which < 32; ++which) {
    std::string seed(1, which);
    for (const char odd : {0, 16}) seeds.push_back(seed + odd + std::string(90, which));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  HeapMemory memory;
  std::list<Node> nodes;  // Places stay.
  std::vector<Table> tables;
  for (int i = 0; i < 2; ++i) {
    Node& node = Make(input, nodes, 3);
    if (std::any_of(nodes.begin(), nodes.end(), [](const Node& one) { return one.is_strange; })) {
      (void)ReadField(node.schema);
      return 0;
    }
    absl::StatusOr<Chunked> chunks = ReadChunk(&node.schema, &node.array);
    if (!chunks.ok()) return 0;
    absl::StatusOr<Table> table = TableFromColumn(*std::move(chunks));
    if (!table.ok() || table->columns() == 0) return 0;
    tables.push_back(*std::move(table));
  }
  const Table& table = tables.front();
  const std::vector<size_t> keys = {0};
  if (absl::StatusOr<RowNumbers> parts = PartsByHash(table, keys, 5); parts.ok()) {
    FUZZ_CHECK(HeavyKeys(table, keys).ok());
    if (const auto made = Partition(table, *std::move(parts), 5, memory); made.ok())
      FUZZ_CHECK(made->offsets.back() == table.rows);
  }
  const auto sorted = SortBounds::Make(table, keys, tables[1], {false}, memory);
  std::vector<uint32_t> part(static_cast<size_t>(table.rows));
  if (sorted.ok() && sorted->Place(table, part.data()).ok()) {
    for (const uint32_t one : part) FUZZ_CHECK(one < sorted->parts());
  }
  std::vector<uint32_t> all;
  for (int64_t row = table.rows; row-- > 0;) all.push_back(static_cast<uint32_t>(row));
  (void)GatherRows(table, all, memory);
  if (const auto both = ConcatenateTables(tables, memory); both.ok()) {
    FUZZ_CHECK(both->rows == tables[0].rows + tables[1].rows);
    ArrowArrayStream stream;
    WriteStream(*both, &stream);
    FUZZ_CHECK(ReadStream(&stream).ok());
  }
  return 0;
}
