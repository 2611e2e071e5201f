// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/resources.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace sheaf {
namespace {

std::optional<KnownResource> Known(std::string_view name) {
  for (size_t i = 0; i < kKnownResources; ++i) {
    if (name == kKnownResourceNames[i]) {
      return static_cast<KnownResource>(i);
    }
  }
  return std::nullopt;
}

// Debian's Abseil has a string_view of its own.
absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

bool IsBytes(std::string_view name) { return name == "memory" || name == "object_store_memory"; }

// Of untrusted text: what is no plain character becomes '?', and it ends after 64.
std::string Printable(std::string_view name) {
  std::string out(name.substr(0, 64));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '?';
    }
  }
  return out;
}

Amount SaturatingAdd(Amount a, Amount b) {
  Amount sum;
  return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}

Amount SaturatingSubtract(Amount a, Amount b) {
  Amount difference;
  return __builtin_sub_overflow(a, b, &difference) ? (b < 0 ? INT64_MAX : INT64_MIN) : difference;
}

// a := a + b or a - b by names, both sorted.
void MergeCustom(std::vector<Resources::Custom>& a, const std::vector<Resources::Custom>& b,
                 Amount (*combine)(Amount, Amount)) {
  bool in_place = true;
  auto at = a.begin();
  for (const auto& [name, amount] : b) {
    while (at != a.end() && at->first < name) {
      ++at;
    }
    if (at == a.end() || at->first != name || combine(at->second, amount) == 0) {
      in_place = false;
      break;
    }
  }
  if (in_place) {  // The usual case: no name appears, none vanishes.
    at = a.begin();
    for (const auto& [name, amount] : b) {
      while (at->first < name) {
        ++at;
      }
      at->second = combine(at->second, amount);
    }
    return;
  }
  std::vector<Resources::Custom> merged;
  merged.reserve(a.size() + b.size());
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    if (right == b.end() || (left != a.end() && left->first < right->first)) {
      merged.push_back(std::move(*left++));
    } else if (left == a.end() || right->first < left->first) {
      merged.emplace_back(right->first, combine(0, right->second));
      ++right;
    } else {
      const Amount amount = combine(left->second, right->second);
      if (amount != 0) {
        merged.emplace_back(std::move(left->first), amount);
      }
      ++left;
      ++right;
    }
  }
  a = std::move(merged);
}

// "2", "0.5", "0.0001".
std::string Decimal(Amount amount) {
  const bool negative = amount < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(amount) : amount;
  std::string out = absl::StrCat(negative ? "-" : "", magnitude / kUnit);
  if (const uint64_t fraction = magnitude % kUnit; fraction != 0) {
    std::string digits = absl::StrFormat("%04u", fraction);
    digits.erase(digits.find_last_not_of('0') + 1);
    absl::StrAppend(&out, ".", digits);
  }
  return out;
}

}  // namespace

Amount Resources::Get(std::string_view name) const {
  if (const auto known = Known(name)) {
    return Get(*known);
  }
  const auto it = std::lower_bound(
      custom_.begin(), custom_.end(), name,
      [](const Custom& item, std::string_view wanted) { return item.first < wanted; });
  return it != custom_.end() && it->first == name ? it->second : 0;
}

void Resources::Set(std::string_view name, Amount amount) {
  if (const auto known = Known(name)) {
    Set(*known, amount);
    return;
  }
  const auto it = std::lower_bound(
      custom_.begin(), custom_.end(), name,
      [](const Custom& item, std::string_view wanted) { return item.first < wanted; });
  const bool found = it != custom_.end() && it->first == name;
  if (found && amount == 0) {
    custom_.erase(it);
  } else if (found) {
    it->second = amount;
  } else if (amount != 0) {
    custom_.emplace(it, std::string(name), amount);
  }
}

Resources& Resources::operator+=(const Resources& other) {
  for (size_t i = 0; i < kKnownResources; ++i) {
    known_[i] = SaturatingAdd(known_[i], other.known_[i]);
  }
  if (!other.custom_.empty()) {
    MergeCustom(custom_, other.custom_, SaturatingAdd);
  }
  return *this;
}

Resources& Resources::operator-=(const Resources& other) {
  for (size_t i = 0; i < kKnownResources; ++i) {
    known_[i] = SaturatingSubtract(known_[i], other.known_[i]);
  }
  if (!other.custom_.empty()) {
    MergeCustom(custom_, other.custom_, SaturatingSubtract);
  }
  return *this;
}

bool Resources::FitsCustom(const Resources& request) const {
  auto at = custom_.begin();
  for (const auto& [name, amount] : request.custom_) {
    if (amount <= 0) {
      continue;
    }
    while (at != custom_.end() && at->first < name) {
      ++at;
    }
    if (at == custom_.end() || at->first != name || at->second < amount) {
      return false;
    }
  }
  return true;
}

Resources Resources::Missing(const Resources& request) const {
  Resources missing;
  request.ForEach([&](std::string_view name, Amount amount) {
    const Amount here = std::max<Amount>(Get(name), 0);
    if (amount > here) {
      missing.Set(name, amount - here);
    }
  });
  return missing;
}

bool Resources::Overlaps(const Resources& other) const {
  for (size_t i = 0; i < kKnownResources; ++i) {
    if (known_[i] > 0 && other.known_[i] > 0) {
      return true;
    }
  }
  for (const auto& [name, amount] : other.custom_) {
    if (amount > 0 && Get(name) > 0) {
      return true;
    }
  }
  return false;
}

std::string AmountToString(std::string_view name, Amount amount) {
  if (IsBytes(name)) {
    static constexpr std::pair<const char*, double> kSuffixes[] = {
        {"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};
    const double bytes = static_cast<double>(amount) / kUnit;
    for (const auto& [suffix, size] : kSuffixes) {
      if (std::abs(bytes) >= size) {
        return absl::StrCat(absl::StrFormat("%.4g", bytes / size), " ", suffix, " ", Text(name));
      }
    }
    return absl::StrCat(Decimal(amount), " bytes ", Text(name));
  }
  return absl::StrCat(Decimal(amount), " ", Text(name));
}

std::string Resources::ToString() const {
  std::string out;
  ForEach([&](std::string_view name, Amount amount) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", AmountToString(name, amount));
  });
  return out.empty() ? "nothing" : out;
}

absl::Status Resources::CheckAmount(std::string_view name, Amount amount) {
  if (name.empty() || name.size() > kMaxResourceNameBytes ||
      Printable(name) != name.substr(0, 64) ||
      name.find_first_of(std::string_view("\0\n\r\t,", 5)) != std::string_view::npos ||
      !IsUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name),
                     "': a resource name has 1 to 256 bytes of UTF-8, none of them a comma"));
  }
  if (amount < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name), "': ", Decimal(amount), " is negative"));
  }
  const double most = IsBytes(name) ? kMaxBytes : kMaxAmount;
  if (static_cast<double>(amount) > most * kUnit) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name), "': ", Decimal(amount), " is above ", most));
  }
  if (name == "GPU" && amount > kUnit && amount % kUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU: ", Decimal(amount), ": more than one GPU must be a whole number of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Amount> AmountFromDouble(std::string_view name, double amount) {
  const double most = IsBytes(name) ? kMaxBytes : kMaxAmount;
  if (!(amount >= 0) || amount > most) {  // Also NaN.
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name), "': ", amount, ": want 0 to ", most));
  }
  const Amount fixed = std::llround(amount * kUnit);
  if (fixed == 0 && amount > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name), "': ", amount, " is below 0.0001, the least there is"));
  }
  SHEAF_RETURN_IF_ERROR(Resources::CheckAmount(name, fixed));
  return fixed;
}

absl::StatusOr<Resources> ParseResources(std::string_view text) {
  Resources result;
  size_t names = 0;
  for (absl::string_view piece : absl::StrSplit(Text(text), ',', absl::SkipWhitespace())) {
    const absl::string_view entry = absl::StripAsciiWhitespace(piece);
    const size_t colon = entry.rfind(':');
    if (colon == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "': want NAME:AMOUNT, as in CPU:2,GPU:0.5"));
    }
    const std::string name(absl::StripAsciiWhitespace(entry.substr(0, colon)));
    absl::string_view digits = absl::StripAsciiWhitespace(entry.substr(colon + 1));
    double factor = 1;
    if (IsBytes(name) && !digits.empty()) {
      if (const size_t power = absl::string_view("KMGT").find(digits.back());
          power != absl::string_view::npos) {
        factor = std::pow(1024, power + 1);
        digits.remove_suffix(1);
      }
    }
    double amount = 0;
    if (!absl::SimpleAtod(digits, &amount)) {
      return absl::InvalidArgumentError(absl::StrCat("'", entry, "': no number after the colon"));
    }
    SHEAF_ASSIGN_OR_RETURN(const Amount fixed, AmountFromDouble(name, amount * factor));
    if (result.Get(name) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' is named twice"));
    }
    if (++names > kMaxResourceNames) {
      return absl::InvalidArgumentError("more than 256 resource names");
    }
    result.Set(name, fixed);
  }
  return result;
}

}  // namespace sheaf
