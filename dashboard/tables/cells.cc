// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/cells.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "base/utf8.h"

namespace sheaf {
namespace {

constexpr double kFixedPoint = 10'000;

bool InBytes(std::string_view resource) {
  return resource == "memory" || resource == "object_store_memory";
}

// Characters, which is columns for nearly all names.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// Up to four digits behind the point, none that say nothing.
std::string Decimal(double number) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.4f", number);
  std::string text = buffer;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// CPU and GPU first, then by name.
std::vector<std::pair<std::string, int64_t>> Sorted(const proto::Resources& resources) {
  std::vector<std::pair<std::string, int64_t>> amounts(resources.amounts().begin(),
                                                       resources.amounts().end());
  const auto rank = [](const std::string& name) {
    return name == "CPU" ? 0 : name == "GPU" ? 1 : 2;
  };
  std::sort(amounts.begin(), amounts.end(), [&rank](const auto& a, const auto& b) {
    return std::make_pair(rank(a.first), a.first) < std::make_pair(rank(b.first), b.first);
  });
  return amounts;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const unsigned char first = static_cast<unsigned char>(text[0]);
    // 0xC2 0x80...0x9F are the control characters of Latin-1.
    const bool control =
        first < 0x20 || first == 0x7f ||
        (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || control) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double amount = static_cast<double>(bytes);
  while (amount >= 1023.95 && unit + 1 < kUnits.size()) {  // So that "1024.0 KiB" is "1.0 MiB".
    amount /= 1024;
    ++unit;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), unit == 0 ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return buffer;
}

std::string FormatDuration(int64_t ns) {
  if (ns < 1'000) return absl::StrFormat("%d ns", ns);
  if (ns < 1'000'000) return absl::StrFormat("%.1f us", static_cast<double>(ns) / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.1f ms", static_cast<double>(ns) / 1e6);
  return absl::StrFormat("%.1f s", static_cast<double>(ns) / 1e9);
}

std::string FormatAmount(std::string_view resource, int64_t amount) {
  const double units = static_cast<double>(amount) / kFixedPoint;
  if (!InBytes(resource)) return Decimal(units);
  return amount < 0 ? absl::StrCat("-", FormatBytes(static_cast<uint64_t>(-units)))
                    : FormatBytes(static_cast<uint64_t>(units));
}

Cell TextCell(std::string_view text) { return {Printable(text), JsonString(text)}; }
Cell CountCell(uint64_t count) { return {FormatCount(count), JsonNumber(count), true}; }
Cell BytesCell(uint64_t bytes) { return {FormatBytes(bytes), JsonNumber(bytes), true}; }
Cell FlagCell(bool flag) { return {flag ? "yes" : "", JsonBool(flag)}; }

Cell IdCell(uint64_t number) {
  return {number == 0 ? "" : std::to_string(number), number == 0 ? "null" : JsonNumber(number),
          true};
}

Cell ProcessCell(uint64_t packed) {
  if (packed == 0) return {"", "null"};
  const std::string name = ProcessId::Unpack(packed).ToString();
  return {name, JsonString(name)};
}

Cell TimeCell(int64_t unix_s) {
  if (unix_s == 0) return {"", "null"};
  const time_t seconds = unix_s;
  tm local{};
  char buffer[32] = "";
  if (localtime_r(&seconds, &local) != nullptr) {
    std::strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%S", &local);
  }
  return {buffer, JsonNumber(unix_s)};
}

Cell ResourcesCell(const proto::Resources& resources) {
  std::vector<std::string> parts;
  JsonObject object;
  for (const auto& [name, amount] : Sorted(resources)) {
    parts.push_back(absl::StrCat(FormatAmount(name, amount), " ", Printable(name)));
    object.Add(name, JsonAmount(name, amount));
  }
  return {absl::StrJoin(parts, ", "), object.Done()};
}

Cell NumbersCell(const std::vector<uint32_t>& numbers) {
  JsonArray array;
  for (uint32_t number : numbers) array.Add(JsonNumber(uint64_t{number}));
  return {absl::StrJoin(numbers, ","), array.Done()};
}

std::string Listing::Text() const {
  std::vector<size_t> widths(columns.size(), 0);
  for (const auto& row : rows) {
    for (size_t c = 0; c < columns.size(); ++c) widths[c] = std::max(widths[c], Width(row[c].text));
  }
  std::vector<size_t> shown;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (widths[c] == 0 && !rows.empty()) continue;
    widths[c] = std::max(widths[c], Width(columns[c].title));
    shown.push_back(c);
  }
  std::string out;
  const auto add_line = [&](auto&& text_of, auto&& number_of) {
    std::string line;
    for (size_t c : shown) {
      const std::string& text = text_of(c);
      const std::string padding(widths[c] - Width(text), ' ');
      if (!line.empty()) line += "  ";
      line += number_of(c) ? padding + text : text + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  const auto is_number = [&](size_t c) { return !rows.empty() && rows[0][c].number; };
  add_line([&](size_t c) { return std::string(columns[c].title); }, is_number);
  for (const auto& row : rows) {
    add_line([&](size_t c) { return row[c].text; }, is_number);
  }
  return out;
}

std::string Listing::Json() const {
  JsonArray array;
  for (const auto& row : rows) {
    JsonObject object;
    for (size_t c = 0; c < columns.size(); ++c) object.Add(columns[c].key, row[c].json);
    array.Add(object.Done());
  }
  return array.Done();
}

std::string StoreJson(const proto::StoreRow& store) {
  return JsonObject()
      .Add("capacity_bytes", JsonNumber(uint64_t{store.capacity_bytes()}))
      .Add("used_bytes", JsonNumber(uint64_t{store.used_bytes()}))
      .Add("pinned_bytes", JsonNumber(uint64_t{store.pinned_bytes()}))
      .Add("spilled_bytes", JsonNumber(uint64_t{store.spilled_bytes()}))
      .Add("populated_bytes", JsonNumber(uint64_t{store.populated_bytes()}))
      .Add("objects", JsonNumber(uint64_t{store.objects()}))
      .Done();
}

}  // namespace sheaf
