// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The templates of this process's calls: one for each distinct spec, while a handle or a call needs
// it. Those that nothing needs are looked for whenever the table has doubled; a released number is
// used again, behind the word that it is gone (TaskTemplate::gone) on the same lane. Pure: one lock
// of its user guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/owner/peer_table.h"
#include "worker/owner/task_submitter.h"

namespace sheaf {

class TemplateTable {
 public:
  TemplateTable(PeerTable& peers, TaskSubmitter& submitter)
      : peers_(peers), submitter_(submitter) {}

  // The template of `spec`, whose number is set here. A call_name gives a handle of its own, which
  // only a caller holds, of the template without it.
  TemplateHandle Make(proto::TaskTemplate spec);
  size_t size() const { return by_spec_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  void ReleaseUnused();
  void Release(const TemplateRecord& record);

  PeerTable& peers_;
  TaskSubmitter& submitter_;
  absl::flat_hash_map<std::string, std::shared_ptr<TemplateRecord>> by_spec_;
  size_t bytes_ = 0;  // Of all, about.
  // From these on it looks for what nothing needs.
  static constexpr size_t kFewTemplates = 1024, kFewBytes = 8 << 20;
  size_t look_at_size_ = kFewTemplates;
  size_t look_at_bytes_ = kFewBytes;
  std::vector<uint32_t> free_numbers_;
  uint32_t next_number_ = 1;
};

}  // namespace sheaf
