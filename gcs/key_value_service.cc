// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/key_value_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"

namespace sheaf {
namespace {

constexpr size_t kMaxReplyBytes = 48 << 20;  // A frame has at most 64 MiB.

proto::GcsReply Invalid(absl::string_view message) {
  return ErrorReply(ErrorKind::kInvalidArgument, std::string(message));
}

std::string KeyLatch(const std::string& row) { return "kv/" + row; }

}  // namespace

void KeyValueService::Load(std::string_view row, std::string_view value) {
  table_.Put(std::string(row), std::string(value));
}

void KeyValueService::Put(CallPtr call, const proto::KvPut& request) {
  const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), request.key());
  if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
  if (request.value().size() > KeyValueTable::kMaxValueBytes) {
    return context_.pipeline.Answer(
        call,
        Invalid(absl::StrCat("a value of ", request.value().size(), " bytes, at most ",
                             KeyValueTable::kMaxValueBytes, "; put it into the object store")));
  }
  context_.pipeline.Run(
      std::move(call), {KeyLatch(*row)},
      [this, row = *row, value = request.value(), overwrite = request.overwrite()]() -> Outcome {
        Outcome outcome;
        const bool added = table_.Find(row) == nullptr;
        outcome.reply.mutable_kv_put()->set_added(added);
        if (!added && !overwrite) return outcome;
        if (table_.bytes() + row.size() + value.size() > context_.options.max_key_value_bytes) {
          return {{},
                  nullptr,
                  Invalid(absl::StrCat("the key-value store is full: ", table_.bytes(), " of ",
                                       context_.options.max_key_value_bytes,
                                       " bytes; delete some keys"))};
        }
        outcome.writes = {{Table::kKeyValues, row, value}};
        outcome.apply = [this, row, value] {
          Publish(row, &value);
          table_.Put(row, value);
        };
        return outcome;
      });
}

void KeyValueService::Delete(CallPtr call, const proto::KvDelete& request) {
  const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), request.key());
  if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
  const auto rows = [this, row = *row, prefix = request.prefix()]() -> std::vector<std::string> {
    if (prefix) return table_.WithPrefix(row);
    return table_.Find(row) == nullptr ? std::vector<std::string>() : std::vector{row};
  };
  std::vector<std::string> latches;
  for (const std::string& one : request.prefix() ? rows() : std::vector{*row})
    latches.push_back(KeyLatch(one));
  context_.pipeline.Run(std::move(call), std::move(latches), [this, rows]() -> Outcome {
    Outcome outcome;
    std::vector<std::string> gone = rows();
    outcome.reply.mutable_kv_count()->set_count(gone.size());
    for (const std::string& one : gone)
      outcome.writes.push_back({Table::kKeyValues, one, std::nullopt});
    outcome.apply = [this, gone = std::move(gone)] {
      for (const std::string& one : gone) {
        if (table_.Find(one) != nullptr) Publish(one, nullptr);
        table_.Erase(one);
      }
    };
    return outcome;
  });
}

void KeyValueService::Get(const CallPtr& call, const proto::KvGet& request) const {
  proto::GcsReply reply;
  reply.mutable_kv_values();
  size_t bytes = 0;
  for (const std::string& key : request.keys()) {
    const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), key);
    const std::string* value = row.ok() ? table_.Find(*row) : nullptr;
    if (value == nullptr) continue;
    bytes += key.size() + value->size();
    if (bytes > kMaxReplyBytes) {
      return context_.pipeline.Answer(
          call, Invalid("the values have more than 48 MiB; ask for fewer at once"));
    }
    proto::KvEntry* entry = reply.mutable_kv_values()->add_entries();
    entry->set_key(key);
    entry->set_value(*value);
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void KeyValueService::Keys(const CallPtr& call, const proto::KvKeys& request) const {
  const absl::StatusOr<std::string> row =
      KeyValueTable::RowOf(request.name_space(), request.prefix());
  if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
  proto::GcsReply reply;
  proto::KvKeyList* list = reply.mutable_kv_keys();
  size_t bytes = 0;
  table_.VisitPrefix(*row, [&](std::string_view found, const std::string&) {
    bytes += found.size();
    if (bytes <= kMaxReplyBytes) list->add_keys(std::string(KeyValueTable::KeyOf(found)));
  });
  if (bytes > kMaxReplyBytes) {
    reply = Invalid("the keys have more than 48 MiB; ask with a longer prefix");
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void KeyValueService::Exists(const CallPtr& call, const proto::KvExists& request) const {
  proto::GcsReply reply;
  uint64_t count = 0;
  for (const std::string& key : request.keys()) {
    const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), key);
    count += row.ok() && table_.Find(*row) != nullptr;
  }
  reply.mutable_kv_count()->set_count(count);
  context_.pipeline.Answer(call, std::move(reply));
}

bool KeyValueService::AddSnapshot(const proto::Subscribe& request,
                                  proto::Snapshot* snapshot) const {
  const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), request.key());
  if (!row.ok()) return false;
  size_t bytes = 0;
  table_.VisitPrefix(*row, [&](std::string_view found, const std::string& value) {
    bytes += found.size() + value.size();
    if (bytes > kMaxReplyBytes) return;
    proto::KvChange* item = snapshot->add_items()->mutable_key_value();
    item->set_key(std::string(KeyValueTable::KeyOf(found)));
    item->set_value(value);
  });
  return bytes <= kMaxReplyBytes;
}

void KeyValueService::Publish(const std::string& row, const std::string* value) {
  if (!context_.publisher.HasSubscribers(proto::Subscribe::KEY_VALUES)) return;
  proto::Change change;
  proto::KvChange* item = change.mutable_key_value();
  item->set_key(std::string(KeyValueTable::KeyOf(row)));
  if (value != nullptr) {
    item->set_value(*value);
  } else {
    item->set_deleted(true);
  }
  context_.publisher.Publish(proto::Subscribe::KEY_VALUES, KeyValueTable::NameSpaceOf(row),
                             item->key(), change);
}

}  // namespace sheaf
