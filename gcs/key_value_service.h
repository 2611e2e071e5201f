// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Commands and questions about keys and values. Durable: workers that start after the driver's end
// still find functions and packages.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/key_value_table.h"

namespace sheaf {

class KeyValueService {
 public:
  // `may_own`: the job runs, or has left a detached actor. `is_named`: a submission needs the
  // package.
  KeyValueService(const GcsContext& context, std::function<bool(JobNumber)> may_own,
                  std::function<bool(std::string_view)> is_named)
      : context_(context),
        may_own_(std::move(may_own)),
        is_named_(std::move(is_named)),
        began_at_(context.clock.Now()) {}

  // A key comes before its owners.
  void Load(std::string_view row, std::string_view value);
  void LoadOwner(std::string_view owner_row);

  void Put(CallPtr call, const proto::KvPut& request);
  void Delete(CallPtr call, const proto::KvDelete& request);
  void Get(const CallPtr& call, const proto::KvGet& request);
  void Keys(const CallPtr& call, const proto::KvKeys& request) const;
  void Exists(const CallPtr& call, const proto::KvExists& request);
  void Own(CallPtr call, const proto::KvOwn& request);
  void List(const CallPtr& call, const proto::KvList& request) const;
  // The job is over and left no detached actor: what only it owned goes.
  void Release(JobNumber job);
  // Packages that were uploaded, and that nobody has needed for a while.
  void DropUnused();
  // False: the answer would be too large.
  bool AddSnapshot(const proto::Subscribe& request, proto::Snapshot* snapshot) const;

  const KeyValueTable& table() const { return table_; }

 private:
  std::string Full(size_t wanted) const;
  // All of them or none.
  void Release(const std::vector<std::string>& rows, JobNumber job);
  // A row of an uploaded package is put or asked for. Of others nothing is remembered.
  void Touch(const std::string& row);
  bool IsUnused(const std::string& package) const;
  // What erases rows with their owners, on disk and here.
  Outcome Erasing(std::vector<std::string> rows);
  void Publish(const std::string& row, const std::string* value);

  const GcsContext context_;
  const std::function<bool(JobNumber)> may_own_;
  const std::function<bool(std::string_view)> is_named_;
  // When packages were last put or asked for, by name; the others not since the GCS began.
  absl::btree_map<std::string, Nanos> touched_;
  const Nanos began_at_;
  KeyValueTable table_;
};

}  // namespace sheaf
