// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Commands and questions about keys and values.
#pragma once

#include <string>
#include <string_view>

#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/key_value_table.h"

namespace sheaf {

class KeyValueService {
 public:
  explicit KeyValueService(const GcsContext& context) : context_(context) {}

  void Load(std::string_view row, std::string_view value);

  void Put(CallPtr call, const proto::KvPut& request);
  void Delete(CallPtr call, const proto::KvDelete& request);
  void Get(const CallPtr& call, const proto::KvGet& request) const;
  void Keys(const CallPtr& call, const proto::KvKeys& request) const;
  void Exists(const CallPtr& call, const proto::KvExists& request) const;
  // False: the answer would be too large.
  bool AddSnapshot(const proto::Subscribe& request, proto::Snapshot* snapshot) const;

  const KeyValueTable& table() const { return table_; }

 private:
  void Publish(const std::string& row, const std::string* value);

  const GcsContext context_;
  KeyValueTable table_;
};

}  // namespace sheaf
