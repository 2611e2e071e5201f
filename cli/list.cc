// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/list.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/tables/listing.h"
#include "dashboard/tables/table_page.h"
#include "dashboard/tables/table_query.h"
#include "dashboard/tables/train_runs.h"
#include "http/message.h"

namespace sheaf::cli {
namespace {

constexpr uint32_t kDefaultRows = 10'000;  // That a node gives where no limit is named.

// What the same words say in the address of a page.
absl::StatusOr<dashboard::PageOptions> PageOf(const ListOptions& options) {
  http::Pairs words = {{"order", options.order}, {"ended", options.ended}};
  for (const std::string& filter : options.filters) words.emplace_back("filter", filter);
  SHEAF_ASSIGN_OR_RETURN(dashboard::PageOptions page, dashboard::ParsePageOptions(words));
  page.limit = options.limit;
  return page;
}

// The rows of `answer` that are wanted; `more`: there are others.
absl::StatusOr<Listing> Chosen(const ListOptions& options, const dashboard::PageOptions& page,
                               const proto::StateAnswer& answer, bool& more) {
  Listing table = ListingOf(options.kind, answer);
  more = answer.truncated();
  if (options.kind == "tasks") return table;  // Nodes have chosen.
  SHEAF_RETURN_IF_ERROR(dashboard::Arrange(page, table));
  if (page.limit != 0 && page.limit < table.rows.size()) {
    table.rows.resize(page.limit);
    more = true;
  }
  return table;
}

// The GCS has them among its keys, so they take more than one question.
int ListRuns(const ListOptions& options, const dashboard::PageOptions& page) {
  const auto ask = [&options](const proto::StateQuery& query, Nanos) {
    return Ask(options.query, query);
  };
  absl::StatusOr<Listing> table = dashboard::ListTrainRuns(ask, options.query.timeout);
  if (!table.ok()) return Complain(table.status());
  if (const absl::Status fits = dashboard::Arrange(page, *table); !fits.ok()) return Complain(fits);
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

int Print(const ListOptions& options, const Listing& table, const proto::StateAnswer& answer,
          bool more) {
  if (options.query.json) {
    std::printf("%s\n", ListJson(options.kind, table, answer, more).c_str());
    return kDone;
  }
  if (table.rows.empty()) {
    std::printf("No %s.\n", options.kind.c_str());
    return kDone;
  }
  std::fputs(table.Text().c_str(), stdout);
  if (answer.late_nodes_size() != 0) {
    std::printf("(without the rows of nodes %s, which did not answer in time)\n",
                absl::StrJoin(answer.late_nodes(), ", ").c_str());
  } else if (more) {
    std::printf("(only the first %s; more with --limit)\n", FormatCount(table.rows.size()).c_str());
  }
  if (answer.events_lost() != 0) {
    std::printf("(%s more ended before their node looked; sheaf list functions counts them)\n",
                FormatCount(answer.events_lost()).c_str());
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
  const absl::StatusOr<dashboard::PageOptions> page = PageOf(options);
  if (!page.ok()) return Complain(page.status());
  if (options.kind == dashboard::kTrainRuns) return ListRuns(options, *page);
  absl::StatusOr<proto::StateQuery> query = dashboard::QueryOf(options.kind, *page);
  if (!query.ok()) return Complain(query.status());
  // What is chosen or ordered here is so of all rows: the limit is for those that fit.
  const bool is_chosen_here =
      options.kind != "tasks" && (!options.filters.empty() || !options.order.empty());
  if (!is_chosen_here || options.limit > std::max(query->limit(), kDefaultRows))
    query->set_limit(options.limit);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, *query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) return Complain(absl::InternalError(answer->error()));
  bool more = false;
  const absl::StatusOr<Listing> chosen = Chosen(options, *page, *answer, more);
  if (!chosen.ok()) return Complain(chosen.status());
  return Print(options, *chosen, *answer, more);
}

}  // namespace sheaf::cli
