// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the runtime sees of an ArgumentList: its encoded bytes, the entries that it refers to, and
// its items one by one.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "worker/owner/reference_table.h"
#include "worker/owner/task_record.h"
#include "worker/runtime.h"
#include "worker/wire.h"

namespace sheaf {

class ArgumentCodec {
 public:
  static InlineBytes TakeBytes(ArgumentList& list) { return std::move(list.encoded_); }
  static std::string_view Bytes(const ArgumentList& list) { return list.encoded_; }
  // The entries of a finished list, with one use each, for a task. Under the lock.
  static std::unique_ptr<TaskReferences> TakeReferences(ReferenceTable& table, ArgumentList& list) {
    if (list.references_.empty() && list.nested_.empty()) return nullptr;
    auto out = std::make_unique<TaskReferences>();
    for (const auto& reference : list.references_) {
      table.AddUse(*reference.object.entry());
      out->arguments.push_back({reference.object.entry(), reference.position, reference.packed});
    }
    for (const ObjectHandle& nested : list.nested_) {
      table.AddUse(*nested.entry());
      out->nested.push_back(nested.entry());
    }
    return out;
  }
  static std::span<const ObjectHandle> Nested(const ArgumentList& list) { return list.nested_; }
  static size_t references(const ArgumentList& list) { return list.references_.size(); }
  static bool RefersToObjects(const ArgumentList& list) {
    return !list.references_.empty() || !list.nested_.empty();
  }
  // The arguments that are objects.
  template <class Visit>
  static void ForEachReference(const ArgumentList& list, Visit visit) {
    for (const auto& reference : list.references_) visit(reference.object);
  }
  // The object is `count` small arguments, encoded.
  static void AddPack(ArgumentList& list, const ObjectHandle& object, size_t count) {
    list.AddReference(object);
    list.references_.back().packed = true;
    list.count_ += static_cast<uint32_t>(count) - 1;
  }

  // Visits the items of a list in order: value(bytes, nested) or reference(handle). Either gives a
  // status, and the first that is not ok ends the visit.
  template <class Value, class Reference>
  static absl::Status Visit(const ArgumentList& list, Value value, Reference reference) {
    const std::string_view encoded = list.encoded_;
    WireReader in(encoded);
    size_t next_reference = 0, next_holder = 0, next_nested = 0;
    while (!in.rest().empty()) {
      const size_t position = encoded.size() - in.rest().size();
      const auto* head = in.Struct<ArgumentHead>();
      const std::string_view bytes = in.Bytes(head->bytes);
      absl::Status status;
      if (next_reference < list.references_.size() &&
          list.references_[next_reference].position == position) {
        status = reference(list.references_[next_reference++].object);
      } else {
        size_t held = 0;
        if (next_holder < list.holders_.size() && list.holders_[next_holder].position == position) {
          held = list.holders_[next_holder++].nested;
        }
        status = value(bytes, std::span(list.nested_).subspan(next_nested, held));
        next_nested += held;
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

}  // namespace sheaf
