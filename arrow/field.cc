// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/field.h"

#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

constexpr int kDeepest = 64;                      // Children of children.
constexpr int64_t kMostChildren = 1 << 20;        // Columns of a table, too.
constexpr int64_t kMostMetadata = 64 << 20;       // Bytes.
constexpr int64_t kMostWidth = int64_t{1} << 30;  // Of a value.
constexpr char kColumnPayload[] = "sheaf/arrow/column";
constexpr int64_t kSecond = 1'000'000'000;

struct Simple {
  absl::string_view format;
  Layout layout;
  Kind kind;
  int32_t width;
  int64_t nanos = 1;
};
constexpr Simple kSimple[] = {
    {"n", Layout::kNull, Kind::kNull, 0},
    {"b", Layout::kBits, Kind::kBool, 0},
    {"c", Layout::kFixed, Kind::kSigned, 1},
    {"C", Layout::kFixed, Kind::kUnsigned, 1},
    {"s", Layout::kFixed, Kind::kSigned, 2},
    {"S", Layout::kFixed, Kind::kUnsigned, 2},
    {"i", Layout::kFixed, Kind::kSigned, 4},
    {"I", Layout::kFixed, Kind::kUnsigned, 4},
    {"l", Layout::kFixed, Kind::kSigned, 8},
    {"L", Layout::kFixed, Kind::kUnsigned, 8},
    {"e", Layout::kFixed, Kind::kFloat, 2},
    {"f", Layout::kFixed, Kind::kFloat, 4},
    {"g", Layout::kFixed, Kind::kFloat, 8},
    {"z", Layout::kBinary, Kind::kBytes, 0},
    {"u", Layout::kBinary, Kind::kBytes, 0},
    {"Z", Layout::kLargeBinary, Kind::kBytes, 0},
    {"U", Layout::kLargeBinary, Kind::kBytes, 0},
    {"tdD", Layout::kFixed, Kind::kTime, 4, 86400 * kSecond},
    {"tdm", Layout::kFixed, Kind::kTime, 8, kSecond / 1000},
    {"tts", Layout::kFixed, Kind::kTime, 4, kSecond},
    {"ttm", Layout::kFixed, Kind::kTime, 4, kSecond / 1000},
    {"ttu", Layout::kFixed, Kind::kTime, 8, 1000},
    {"ttn", Layout::kFixed, Kind::kTime, 8, 1},
    {"tDs", Layout::kFixed, Kind::kTime, 8, kSecond},
    {"tDm", Layout::kFixed, Kind::kTime, 8, kSecond / 1000},
    {"tDu", Layout::kFixed, Kind::kTime, 8, 1000},
    {"tDn", Layout::kFixed, Kind::kTime, 8, 1},
    {"tiM", Layout::kFixed, Kind::kNone, 4},
    {"tiD", Layout::kFixed, Kind::kNone, 8},
    {"tin", Layout::kFixed, Kind::kNone, 16},
    {"+s", Layout::kStruct, Kind::kNone, 0},
    {"+l", Layout::kList, Kind::kNone, 0},
    {"+m", Layout::kList, Kind::kNone, 0},
    {"+L", Layout::kLargeList, Kind::kNone, 0},
};

absl::Status Malformed(const Field& field, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the schema of column '", field.name, "' is malformed: ", what));
}

// A number at the end of a format: "w:16".
bool NumberIn(absl::string_view text, int32_t* number) {
  return absl::SimpleAtoi(text, number) && *number >= 0 && *number <= kMostWidth;
}

// Fills what `field.format` says.
absl::Status ReadFormat(Field& field) {
  const absl::string_view format = field.format;
  for (const Simple& simple : kSimple) {
    if (format != simple.format) continue;
    field.layout = simple.layout;
    field.kind = simple.kind;
    field.width = simple.width;
    field.nanos = simple.nanos;
    return absl::OkStatus();
  }
  if (absl::StartsWith(format, "ts") && format.size() >= 4 && format[3] == ':') {
    const absl::string_view units = "smun";
    const size_t unit = units.find(format[2]);
    if (unit == absl::string_view::npos) return absl::OkStatus();
    constexpr int64_t kNanos[] = {kSecond, kSecond / 1000, 1000, 1};
    field.layout = Layout::kFixed;
    field.kind = Kind::kTime;
    field.width = 8;
    field.nanos = kNanos[unit];
  } else if (absl::StartsWith(format, "w:") || absl::StartsWith(format, "+w:")) {
    const bool is_list = format[0] == '+';
    if (!NumberIn(format.substr(is_list ? 3 : 2), &field.width))
      return Malformed(field, absl::StrCat("the width in its type '", format, "'"));
    field.layout = is_list ? Layout::kFixedList : Layout::kFixed;
    field.kind = is_list ? Kind::kNone : Kind::kBytes;
  } else if (absl::StartsWith(format, "d:")) {
    const std::vector<absl::string_view> parts = absl::StrSplit(format.substr(2), ',');
    int32_t bits = 128;
    if (parts.size() == 3 && !NumberIn(parts[2], &bits)) bits = -1;
    if (parts.size() < 2 || parts.size() > 3 ||
        (bits != 32 && bits != 64 && bits != 128 && bits != 256))
      return Malformed(field, absl::StrCat("its decimal type '", format, "'"));
    field.layout = Layout::kFixed;
    field.kind = Kind::kDecimal;
    field.width = bits / 8;
  }
  return absl::OkStatus();
}

// `metadata` is a count, then so many keys and values, each with its size before it.
absl::StatusOr<std::string> ReadMetadata(const Field& field, const char* metadata) {
  if (metadata == nullptr) return std::string();
  int64_t at = 0;
  const auto next = [&]() {
    int32_t number;
    std::memcpy(&number, metadata + at, sizeof(number));
    at += sizeof(number);
    return number;
  };
  const int32_t count = next();
  if (count < 0) return Malformed(field, absl::StrCat(count, " pairs of metadata"));
  for (int64_t i = 0; i < int64_t{2} * count; ++i) {
    const int32_t size = next();
    if (size < 0 || at + size > kMostMetadata)
      return Malformed(field, absl::StrCat("metadata of ", size, " bytes"));
    at += size;
  }
  return std::string(metadata, static_cast<size_t>(at));
}

absl::Status CheckChildren(const Field& field) {
  const size_t wanted = IsList(field.layout) || field.layout == Layout::kFixedList ? 1 : 0;
  if (field.layout == Layout::kStruct || field.layout == Layout::kOther) return absl::OkStatus();
  if (field.children.size() == wanted) return absl::OkStatus();
  return Malformed(field, absl::StrCat("type '", field.format, "' with ", field.children.size(),
                                       " children, which has ", wanted));
}

absl::StatusOr<Field> ReadFieldAt(const ArrowSchema& schema, int depth) {
  Field field;
  if (schema.name != nullptr) field.name = schema.name;
  if (schema.release == nullptr) return Malformed(field, "it was released");
  if (schema.format == nullptr) return Malformed(field, "it has no type");
  if (depth > kDeepest) return Malformed(field, absl::StrCat("deeper than ", kDeepest));
  if (schema.n_children < 0 || schema.n_children > kMostChildren ||
      (schema.n_children > 0 && schema.children == nullptr))
    return Malformed(field, absl::StrCat(schema.n_children, " children"));
  field.format = schema.format;
  field.flags = schema.flags;
  SHEAF_ASSIGN_OR_RETURN(field.metadata, ReadMetadata(field, schema.metadata));
  SHEAF_RETURN_IF_ERROR(ReadFormat(field));
  for (int64_t i = 0; i < schema.n_children; ++i) {
    if (schema.children[i] == nullptr) return Malformed(field, "a child is missing");
    SHEAF_ASSIGN_OR_RETURN(Field child, ReadFieldAt(*schema.children[i], depth + 1));
    field.children.push_back(std::move(child));
  }
  SHEAF_RETURN_IF_ERROR(CheckChildren(field));
  if (schema.dictionary != nullptr) {
    if (field.kind != Kind::kSigned && field.kind != Kind::kUnsigned)
      return Malformed(field,
                       absl::StrCat("a dictionary with indices of type '", field.format, "'"));
    SHEAF_ASSIGN_OR_RETURN(Field values, ReadFieldAt(*schema.dictionary, depth + 1));
    field.dictionary = std::make_shared<const Field>(std::move(values));
  }
  return field;
}

// What an ArrowSchema of ours owns.
struct SchemaOwner {
  Field field;  // Its texts.
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
  ArrowSchema dictionary{};
};

void ReleaseSchema(ArrowSchema* schema) {
  auto* const owner = static_cast<SchemaOwner*>(schema->private_data);
  for (ArrowSchema& child : owner->children) {  // One may have been moved away.
    if (child.release != nullptr) child.release(&child);
  }
  if (owner->dictionary.release != nullptr) owner->dictionary.release(&owner->dictionary);
  delete owner;
  schema->release = nullptr;
}

}  // namespace

Field Widened(Field field) {
  if (field.layout == Layout::kBinary) {
    field.format = field.format == "u" ? "U" : "Z";
    field.layout = Layout::kLargeBinary;
  } else if (field.format == "+l") {  // Maps have no large form.
    field.format = "+L";
    field.layout = Layout::kLargeList;
  }
  return field;
}

bool SameType(const Field& a, const Field& b) {
  if (a.format != b.format || a.children.size() != b.children.size() ||
      (a.dictionary == nullptr) != (b.dictionary == nullptr))
    return false;
  for (size_t i = 0; i < a.children.size(); ++i) {
    if (!SameType(a.children[i], b.children[i])) return false;
    if (a.layout == Layout::kStruct && a.children[i].name != b.children[i].name) return false;
  }
  return a.dictionary == nullptr || SameType(*a.dictionary, *b.dictionary);
}

absl::StatusOr<Field> ReadField(const ArrowSchema& schema) { return ReadFieldAt(schema, 0); }

void WriteField(const Field& field, ArrowSchema* out) {
  auto* const owner = new SchemaOwner{field, {}, {}, {}};
  const Field& own = owner->field;
  owner->children.resize(own.children.size());
  for (size_t i = 0; i < own.children.size(); ++i) {
    WriteField(own.children[i], &owner->children[i]);
    owner->pointers.push_back(&owner->children[i]);
  }
  if (own.dictionary != nullptr) WriteField(*own.dictionary, &owner->dictionary);
  *out = ArrowSchema{
      .format = own.format.c_str(),
      .name = own.name.c_str(),
      .metadata = own.metadata.empty() ? nullptr : own.metadata.data(),
      .flags = own.flags,
      .n_children = static_cast<int64_t>(own.children.size()),
      .children = owner->pointers.data(),
      .dictionary = own.dictionary != nullptr ? &owner->dictionary : nullptr,
      .release = ReleaseSchema,
      .private_data = owner,
  };
}

absl::Status Unsupported(const Field& field, absl::string_view what) {
  const Field& named = field.dictionary != nullptr ? *field.dictionary : field;
  absl::Status status = absl::UnimplementedError(absl::StrCat(
      "column '", field.name, "' has type '", named.format, "' in Arrow's C format, which ", what,
      ": cast it, or use pyarrow for this table"));
  status.SetPayload(kColumnPayload, absl::Cord(field.name));
  return status;
}

std::string ColumnOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kColumnPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace sheaf::arrow
