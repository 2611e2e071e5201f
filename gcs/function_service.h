// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Puts and gets of functions and packages. Durable: workers that start after the driver's end still
// find them.
#pragma once

#include <string_view>

#include "gcs/command_pipeline.h"
#include "gcs/function_table.h"
#include "gcs/gcs_options.h"

namespace sheaf {

class FunctionService {
 public:
  explicit FunctionService(const GcsContext& context) : context_(context) {}

  // Rows come in the order of their keys: a blob before its jobs.
  void Load(std::string_view row, std::string_view value);

  void Put(CallPtr call, const proto::PutBlob& request);
  void Get(const CallPtr& call, const proto::GetBlob& request) const;
  // The job has ended and left no detached actor: what only it needed goes.
  void Release(JobNumber job);

  const FunctionTable& table() const { return table_; }

 private:
  const GcsContext context_;
  FunctionTable table_;
};

}  // namespace sheaf
