// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Commands and questions about keys and values. Durable: workers that start after the driver's end
// still find functions and packages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/key_value_table.h"

namespace sheaf {

class KeyValueService {
 public:
  // `may_own`: the job runs, or has left a detached actor.
  KeyValueService(const GcsContext& context, std::function<bool(JobNumber)> may_own)
      : context_(context), may_own_(std::move(may_own)) {}

  // A key comes before its owners.
  void Load(std::string_view row, std::string_view value);
  void LoadOwner(std::string_view owner_row);

  void Put(CallPtr call, const proto::KvPut& request);
  void Delete(CallPtr call, const proto::KvDelete& request);
  void Get(const CallPtr& call, const proto::KvGet& request) const;
  void Keys(const CallPtr& call, const proto::KvKeys& request) const;
  void Exists(const CallPtr& call, const proto::KvExists& request) const;
  void Own(CallPtr call, const proto::KvOwn& request);
  void List(const CallPtr& call, const proto::KvList& request) const;
  // The job is over and left no detached actor: what only it owned goes.
  void Release(JobNumber job);
  // False: the answer would be too large.
  bool AddSnapshot(const proto::Subscribe& request, proto::Snapshot* snapshot) const;

  const KeyValueTable& table() const { return table_; }

 private:
  std::string Full(size_t wanted) const;
  // What erases rows with their owners, on disk and here.
  Outcome Erasing(std::vector<std::string> rows);
  void Publish(const std::string& row, const std::string* value);

  const GcsContext context_;
  const std::function<bool(JobNumber)> may_own_;
  KeyValueTable table_;
};

}  // namespace sheaf
