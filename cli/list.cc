// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/list.h"

#include <cstdio>

#include "absl/strings/str_join.h"
#include "dashboard/tables/listing.h"

namespace sheaf::cli {

int RunList(const ListOptions& options) {
  proto::StateQuery query = ListQuery(options.kind);
  query.set_limit(options.limit);
  query.set_ended(options.ended);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) return Complain(absl::InternalError(answer->error()));
  if (options.query.json) {
    std::printf("%s\n", ListJson(options.kind, *answer).c_str());
    return kDone;
  }
  const Listing table = ListingOf(options.kind, *answer);
  if (table.rows.empty()) {
    std::printf("No %s.\n", options.kind.c_str());
    return kDone;
  }
  std::fputs(table.Text().c_str(), stdout);
  if (answer->late_nodes_size() != 0) {
    std::printf("(without the rows of nodes %s, which did not answer in time)\n",
                absl::StrJoin(answer->late_nodes(), ", ").c_str());
  } else if (answer->truncated()) {
    std::printf("(only the first %s; more with --limit)\n", FormatCount(table.rows.size()).c_str());
  }
  if (answer->events_lost() != 0) {
    std::printf("(%s more ended before their node looked; sheaf list functions counts them)\n",
                FormatCount(answer->events_lost()).c_str());
  }
  return kDone;
}

}  // namespace sheaf::cli
