// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/template_table.h"

#include <algorithm>
#include <utility>

namespace sheaf {
namespace {

// The key, the message and its wire form have about the same size.
size_t BytesOf(const TemplateRecord& record) {
  return sizeof(TemplateRecord) + 3 * record.wire.size();
}

}  // namespace

TemplateHandle TemplateTable::Make(proto::TaskTemplate spec) {
  spec.set_number(0);
  const std::string name = std::move(*spec.mutable_call_name());
  spec.clear_call_name();
  const std::string key = spec.SerializeAsString();
  auto found = by_spec_.find(key);
  if (found == by_spec_.end()) {
    if (by_spec_.size() >= look_at_size_ || bytes_ >= look_at_bytes_) ReleaseUnused();
    uint32_t number = next_number_;
    if (free_numbers_.empty()) {
      ++next_number_;
    } else {
      number = free_numbers_.back();
      free_numbers_.pop_back();
    }
    auto record = std::make_shared<TemplateRecord>();
    record->spec = std::move(spec);
    record->spec.set_number(number);
    record->wire = record->spec.SerializeAsString();
    bytes_ += BytesOf(*record);
    found = by_spec_.emplace(key, std::move(record)).first;
  }
  if (name.empty() || name == found->second->spec.name()) return found->second;
  auto named = std::make_shared<TemplateRecord>();
  named->base = found->second;
  named->name = name;
  return named;
}

void TemplateTable::ReleaseUnused() {
  for (auto it = by_spec_.begin(); it != by_spec_.end();) {
    // The last handle is the table's: no other can come to be, as one is made from another or here.
    if (it->second.use_count() == 1 && it->second->calls == 0) {
      Release(*it->second);
      by_spec_.erase(it++);
    } else {
      ++it;
    }
  }
  submitter_.ForgetUnusedKeys();
  look_at_size_ = std::max(kFewTemplates, 2 * by_spec_.size());
  look_at_bytes_ = std::max(kFewBytes, 2 * bytes_);
}

void TemplateTable::Release(const TemplateRecord& record) {
  const uint32_t number = record.spec.number();
  bytes_ -= BytesOf(record);
  free_numbers_.push_back(number);
  submitter_.ForgetTemplate(record);
  proto::TaskTemplate gone;
  gone.set_number(number);
  gone.set_gone(true);
  peers_.ForEach([&](Peer& peer) {
    if (number >= peer.templates_sent.size() || !peer.templates_sent[number]) return;
    peer.templates_sent[number] = false;
    SendMessage(*peer.channel, FrameKind::kTemplate, gone, Lane::kWork);
  });
}

}  // namespace sheaf
