// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/list.h"

#include <cstdio>

#include "absl/strings/str_join.h"
#include "base/text/json.h"
#include "dashboard/tables/listing.h"
#include "dashboard/tables/train_runs.h"

namespace sheaf::cli {
namespace {

// The GCS has them among its keys, so they take more than one question.
int ListRuns(const ListOptions& options) {
  const auto ask = [&options](const proto::StateQuery& query, Nanos) {
    return Ask(options.query, query);
  };
  absl::StatusOr<Listing> table = dashboard::ListTrainRuns(ask, options.query.timeout);
  if (!table.ok()) return Complain(table.status());
  const size_t all = table->rows.size();
  if (options.limit != 0 && options.limit < all) table->rows.resize(options.limit);
  if (options.query.json) {
    std::printf("%s\n", JsonObject()
                            .Add("train_runs", table->Json())
                            .Add("truncated", JsonBool(table->rows.size() < all))
                            .Done()
                            .c_str());
    return kDone;
  }
  if (table->rows.empty()) {
    std::puts("No train-runs.");
    return kDone;
  }
  std::fputs(table->Text().c_str(), stdout);
  if (table->rows.size() < all) {
    std::printf("(only the newest %s; more with --limit)\n",
                FormatCount(table->rows.size()).c_str());
  }
  return kDone;
}

}  // namespace

std::vector<std::string> ListedKinds() {
  std::vector<std::string> kinds(kListKinds.begin(), kListKinds.end());
  kinds.push_back(dashboard::kTrainRuns);
  return kinds;
}

int RunList(const ListOptions& options) {
  if (options.kind == dashboard::kTrainRuns) return ListRuns(options);
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
