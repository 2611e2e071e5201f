// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/why.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "dashboard/tables/cells.h"

namespace sheaf::cli {

int RunWhy(const WhyOptions& options) {
  if (!TaskId::FromHex(options.id).ok()) {
    return Complain(absl::InvalidArgumentError(
        absl::StrCat("'", Printable(options.id),
                     "' is no id: want the 32 hexadecimal digits that sheaf list prints")));
  }
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WHY);
  query.set_id(options.id);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) {
    Complain(absl::InternalError(answer->error()));
    return kNotThere;
  }
  if (options.query.json) {
    const std::string json = JsonObject()
                                 .Add("id", JsonString(options.id))
                                 .Add("why", JsonString(answer->words()))
                                 .Done();
    std::printf("%s\n", json.c_str());
  } else {
    std::printf("%s\n", answer->words().c_str());
  }
  return kDone;
}

}  // namespace sheaf::cli
