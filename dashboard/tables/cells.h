// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a listing shows, once, for people and for programs: rows of cells that know both of their
// forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/raylet.pb.h"

namespace sheaf {

struct Cell {
  std::string text;  // For people: printable, one line.
  std::string json;
  bool number = false;  // Stands at the right of its column.
};

Cell TextCell(std::string_view text);
Cell CountCell(uint64_t count);     // "12,345"; JSON: the number.
Cell IdCell(uint64_t number);       // A plain number: pids, job numbers. 0 is empty.
Cell BytesCell(uint64_t bytes);     // "1.5 GiB"; JSON: bytes.
Cell ProcessCell(uint64_t packed);  // "3.17"; 0 is empty, JSON null.
Cell TimeCell(int64_t unix_s);      // "2026-11-21 08:02:11", local time; JSON: seconds since 1970.
Cell FlagCell(bool flag);           // "yes" or "".
// "2 CPU, 1.5 GiB memory"; JSON: an object in whole units.
Cell ResourcesCell(const proto::Resources& resources);
Cell NumbersCell(const std::vector<uint32_t>& numbers);

struct Column {
  const char* title;  // "SIZE".
  const char* key;    // "size_bytes".
};

struct Listing {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // Each as long as `columns`.

  // Titles and rows with a newline each. Columns in which every cell is empty are left out.
  std::string Text() const;
  std::string Json() const;  // An array of objects.
};

std::string FormatCount(uint64_t count);
std::string FormatBytes(uint64_t bytes);
std::string FormatDuration(int64_t ns);  // "850 ns", "12.3 us", "4.0 ms", "1.5 s".
// Amounts in ten-thousandths, "memory" and "object_store_memory" as bytes.
std::string FormatAmount(std::string_view resource, int64_t amount);
// Control characters become '?': nothing that a user named may steer the terminal of another.
std::string Printable(std::string_view text);

// An object of JSON: what a node's store holds.
std::string StoreJson(const proto::StoreRow& store);

}  // namespace sheaf
