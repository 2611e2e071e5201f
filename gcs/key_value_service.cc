// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/key_value_service.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"

namespace sheaf {
namespace {

constexpr size_t kMaxReplyBytes = 48 << 20;  // A frame has at most 64 MiB.
constexpr uint32_t kListedKeys = 10'000;
constexpr size_t kMaxListedBytes = 16 << 20;

proto::GcsReply Invalid(absl::string_view message) {
  return ErrorReply(ErrorKind::kInvalidArgument, std::string(message));
}

std::string KeyLatch(const std::string& row) { return "kv/" + row; }

// The row on disk that says that `job` owns `row`.
std::string OwnerRow(JobNumber job, std::string_view row) { return RowKey(job) + std::string(row); }

// Of an index "NAME", or of a part "NAME/3".
std::string PackageOf(std::string_view row) {
  const std::string_view key = KeyValueTable::KeyOf(row);
  return std::string(key.substr(0, key.find('/')));
}

std::string IsOver(JobNumber job) {
  return absl::StrCat("job ", job, " is over, or none: it can own no keys");
}

}  // namespace

void KeyValueService::LoadOwner(std::string_view owner_row) {
  const auto job = NumberFromRowKey<uint32_t>(owner_row.substr(0, sizeof(uint32_t)));
  if (job) table_.AddOwner(owner_row.substr(sizeof(uint32_t)), *job);
}

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
      [this, row = *row, value = request.value(), overwrite = request.overwrite(),
       owner = request.owner()]() -> Outcome {
        if (owner != 0 && !may_own_(owner)) return {{}, nullptr, Invalid(IsOver(owner))};
        Outcome outcome;
        const std::string* old = table_.Find(row);
        const bool added = old == nullptr;
        const bool written = added || overwrite;
        outcome.reply.mutable_kv_put()->set_added(added);
        const size_t used = table_.bytes() - (added ? 0 : row.size() + old->size());
        if (written && used + row.size() + value.size() > context_.options.max_key_value_bytes)
          return {{}, nullptr, Invalid(Full(row.size() + value.size()))};
        if (written) outcome.writes.push_back({Table::kKeyValues, row, value});
        std::vector<JobNumber> gone;
        const std::set<JobNumber>& owners = table_.OwnersOf(row);
        if (owner == 0 && written) gone.assign(owners.begin(), owners.end());
        for (const JobNumber job : gone)
          outcome.writes.push_back({Table::kKeyOwners, OwnerRow(job, row), std::nullopt});
        // What stays until it is deleted stays so.
        const bool owns = owner != 0 && (added || !owners.empty()) && !owners.contains(owner);
        if (owns) outcome.writes.push_back({Table::kKeyOwners, OwnerRow(owner, row), ""});
        outcome.apply = [this, row, value = written ? value : std::string(), written, owns, owner,
                         gone = std::move(gone)] {
          if (written) {
            Publish(row, &value);
            table_.Put(row, value);
          }
          for (const JobNumber job : gone) table_.RemoveOwner(row, job);
          if (owns) table_.AddOwner(row, owner);
          Touch(row);
        };
        return outcome;
      });
}

std::string KeyValueService::Full(size_t wanted) const {
  return absl::StrCat("the key-value store is full: ", table_.bytes(), " of ",
                      context_.options.max_key_value_bytes, " bytes, of which ",
                      table_.OwnedBytes(),
                      " are functions, packages and groups of jobs, and go with these; ", wanted,
                      " more do not fit. `sheaf kv list` shows what is there and whose it is: "
                      "delete keys with `sheaf kv delete`, end jobs and detached actors, or keep "
                      "large data in the object store or in files");
}

void KeyValueService::Own(CallPtr call, const proto::KvOwn& request) {
  std::vector<std::string> rows, latches;
  for (const std::string& key : request.keys()) {
    absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), key);
    if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
    latches.push_back(KeyLatch(*row));
    rows.push_back(*std::move(row));
  }
  context_.pipeline.Run(std::move(call), std::move(latches),
                        [this, rows = std::move(rows), owner = request.owner()]() -> Outcome {
                          if (!may_own_(owner)) return {{}, nullptr, Invalid(IsOver(owner))};
                          Outcome outcome;
                          uint64_t there = 0;
                          std::vector<std::string> added;
                          for (const std::string& row : rows) {
                            if (table_.Find(row) == nullptr) continue;
                            ++there;
                            const std::set<JobNumber>& owners = table_.OwnersOf(row);
                            if (!owners.empty() && !owners.contains(owner)) added.push_back(row);
                          }
                          outcome.reply.mutable_kv_count()->set_count(there);
                          if (there != rows.size()) return outcome;
                          for (const std::string& row : added)
                            outcome.writes.push_back({Table::kKeyOwners, OwnerRow(owner, row), ""});
                          outcome.apply = [this, owner, added = std::move(added)] {
                            for (const std::string& row : added) table_.AddOwner(row, owner);
                          };
                          return outcome;
                        });
}

void KeyValueService::Release(JobNumber job) {
  for (const std::string& row : table_.RowsOf(job)) Release({row}, job);
}

void KeyValueService::Release(const std::vector<std::string>& rows, JobNumber job) {
  std::vector<std::string> latches;
  for (const std::string& row : rows) latches.push_back(KeyLatch(row));
  context_.pipeline.Run(nullptr, std::move(latches), [this, rows, job]() -> Outcome {
    if (job == KeyValueTable::kNoJobYet && !IsUnused(PackageOf(rows[0]))) return {};
    std::vector<std::string> erased, kept;
    for (const std::string& row : rows) {
      const std::set<JobNumber>& owners = table_.OwnersOf(row);
      if (owners.contains(job)) (owners.size() == 1 ? erased : kept).push_back(row);
    }
    Outcome outcome = Erasing(std::move(erased));
    for (const std::string& row : kept)
      outcome.writes.push_back({Table::kKeyOwners, OwnerRow(job, row), std::nullopt});
    outcome.apply = [this, kept, job, erase = std::move(outcome.apply)] {
      if (erase) erase();
      for (const std::string& row : kept) table_.RemoveOwner(row, job);
    };
    return outcome;
  });
}

void KeyValueService::Touch(const std::string& row) {
  if (table_.OwnersOf(row).contains(KeyValueTable::kNoJobYet))
    touched_[PackageOf(row)] = context_.clock.Now();
}

bool KeyValueService::IsUnused(const std::string& name) const {
  const auto touched = touched_.find(name);
  const Nanos last = touched == touched_.end() ? began_at_ : touched->second;
  return context_.clock.Now() - last >= context_.options.unused_package_after && !is_named_(name);
}

void KeyValueService::DropUnused() {
  std::map<std::string, std::vector<std::string>> packages;
  for (std::string& row : table_.RowsOf(KeyValueTable::kNoJobYet))
    packages[PackageOf(row)].push_back(std::move(row));
  for (const auto& [name, rows] : packages) {
    if (IsUnused(name)) Release(rows, KeyValueTable::kNoJobYet);
  }
  absl::erase_if(touched_, [&](const auto& entry) { return !packages.contains(entry.first); });
}

Outcome KeyValueService::Erasing(std::vector<std::string> rows) {
  Outcome outcome;
  for (const std::string& row : rows) {
    outcome.writes.push_back({Table::kKeyValues, row, std::nullopt});
    for (const JobNumber job : table_.OwnersOf(row))
      outcome.writes.push_back({Table::kKeyOwners, OwnerRow(job, row), std::nullopt});
  }
  outcome.apply = [this, rows = std::move(rows)] {
    for (const std::string& row : rows) {
      if (table_.Find(row) != nullptr) Publish(row, nullptr);
      table_.Erase(row);
    }
  };
  return outcome;
}

void KeyValueService::Delete(CallPtr call, const proto::KvDelete& request) {
  const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), request.key());
  if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
  // Those of a prefix that are there now: a key that comes while these wait has no latch here.
  const std::vector<std::string> asked =
      request.prefix() ? table_.WithPrefix(*row) : std::vector{*row};
  std::vector<std::string> latches;
  for (const std::string& one : asked) latches.push_back(KeyLatch(one));
  context_.pipeline.Run(std::move(call), std::move(latches), [this, asked]() -> Outcome {
    std::vector<std::string> gone;
    for (const std::string& one : asked) {
      if (table_.Find(one) != nullptr) gone.push_back(one);
    }
    const size_t count = gone.size();
    Outcome outcome = Erasing(std::move(gone));
    outcome.reply.mutable_kv_count()->set_count(count);
    return outcome;
  });
}

void KeyValueService::Get(const CallPtr& call, const proto::KvGet& request) {
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
    Touch(*row);
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

void KeyValueService::List(const CallPtr& call, const proto::KvList& request) const {
  const absl::StatusOr<std::string> row =
      KeyValueTable::RowOf(request.name_space(), request.prefix());
  if (!row.ok()) return context_.pipeline.Answer(call, Invalid(row.status().message()));
  proto::GcsReply reply;
  proto::KvListing* list = reply.mutable_kv_listing();
  const int limit = static_cast<int>(
      std::min(request.limit() == 0 ? kListedKeys : request.limit(), uint32_t{INT32_MAX}));
  size_t listed = 0;
  uint64_t keys = 0, bytes = 0;
  table_.VisitPrefix(request.all_name_spaces() ? std::string() : *row,
                     [&](const std::string& found, const std::string& value) {
                       const std::string_view key = KeyValueTable::KeyOf(found);
                       if (!key.starts_with(request.prefix())) return;
                       ++keys;
                       bytes += value.size();
                       const std::set<JobNumber>& owners = table_.OwnersOf(found);
                       if (list->entries_size() >= limit || listed > kMaxListedBytes) return;
                       listed += found.size() + 5 * owners.size() + 16;
                       proto::KvListing::Entry* entry = list->add_entries();
                       entry->set_name_space(std::string(KeyValueTable::NameSpaceOf(found)));
                       entry->set_key(std::string(key));
                       entry->set_bytes(value.size());
                       for (const JobNumber job : owners) entry->add_owners(job);
                     });
  list->set_keys(keys);
  list->set_bytes(bytes);
  list->set_store_bytes(table_.bytes());
  list->set_store_capacity(context_.options.max_key_value_bytes);
  context_.pipeline.Answer(call, std::move(reply));
}

void KeyValueService::Exists(const CallPtr& call, const proto::KvExists& request) {
  proto::GcsReply reply;
  uint64_t count = 0;
  for (const std::string& key : request.keys()) {
    const absl::StatusOr<std::string> row = KeyValueTable::RowOf(request.name_space(), key);
    if (!row.ok() || table_.Find(*row) == nullptr) continue;
    ++count;
    Touch(*row);
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
