// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "base/version.h"
#include "dashboard/tables/cells.h"
#include "dashboard/tables/listing.h"
#include "shm/attach.h"

namespace sheaf::cli {
namespace {

std::string StoreLine(const proto::StoreRow& store) {
  std::string line = absl::StrCat(
      "Objects: ", FormatBytes(store.used_bytes()), " of ", FormatBytes(store.capacity_bytes()),
      " used by ", FormatCount(store.objects()), store.objects() == 1 ? " object" : " objects");
  if (store.pinned_bytes() > 0)
    absl::StrAppend(&line, ", ", FormatBytes(store.pinned_bytes()), " held by readers");
  if (store.spilled_bytes() > 0)
    absl::StrAppend(&line, ", ", FormatBytes(store.spilled_bytes()), " more on disk");
  return line + "\n";
}

// Used and total over the nodes that live, one row a resource.
Listing ResourceTable(const proto::StateAnswer& answer) {
  std::map<std::string, std::pair<int64_t, int64_t>> sums;  // Available, total.
  for (const proto::NodeRow& node : answer.nodes()) {
    if (node.state() == "DEAD") continue;
    for (const auto& [name, amount] : node.total().amounts()) sums[name].second += amount;
    for (const auto& [name, amount] : node.available().amounts()) sums[name].first += amount;
  }
  Listing table{{{"RESOURCE", "resource"}, {"USED", "used"}, {"TOTAL", "total"}}, {}};
  for (const auto& [name, sum] : sums) {
    const int64_t used = sum.second - sum.first;
    table.rows.push_back({TextCell(name),
                          {FormatAmount(name, used), JsonAmount(name, used), true},
                          {FormatAmount(name, sum.second), JsonAmount(name, sum.second), true}});
  }
  return table;
}

// Resources have a table of their own.
Listing WithoutResources(Listing nodes) {
  for (size_t c = nodes.columns.size(); c-- > 0;) {
    const std::string_view key = nodes.columns[c].key;
    if (key != "available" && key != "total") continue;
    nodes.columns.erase(nodes.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (auto& row : nodes.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return nodes;
}

Listing DemandTable(const proto::StateAnswer& answer) {
  Listing table{{{"WAITING", "count"}, {"FOR", "resources"}, {"WHY", "words"}}, {}};
  for (const proto::DemandRow& row : answer.demand()) {
    table.rows.push_back(
        {CountCell(row.count()), ResourcesCell(row.resources()), TextCell(row.words())});
  }
  return table;
}

}  // namespace

std::string StatusText(const proto::StateAnswer& answer) {
  std::string out = WithoutResources(ListingOf("nodes", answer)).Text();
  const Listing resources = ResourceTable(answer);
  if (!resources.rows.empty()) absl::StrAppend(&out, "\n", resources.Text());
  absl::StrAppend(&out, "\n", StoreLine(answer.store()));
  if (!answer.words().empty()) absl::StrAppend(&out, "Head:    ", Printable(answer.words()), "\n");
  if (answer.demand().empty()) {
    out += "Demand:  nothing waits for resources\n";
  } else {
    absl::StrAppend(&out, "\n", DemandTable(answer).Text(), "\n");
  }
  if (!answer.metrics_url().empty())
    absl::StrAppend(&out, "Metrics: ", Printable(answer.metrics_url()), "\n");
  for (int i = 0; i < answer.features_size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "Kernel:  " : "         ", Printable(answer.features(i)), "\n");
  }
  return out;
}

std::string StatusJson(const proto::StateAnswer& answer) {
  JsonArray features;
  for (const std::string& feature : answer.features()) features.Add(JsonString(feature));
  return JsonObject()
      .Add("nodes", ListingOf("nodes", answer).Json())
      .Add("resources", ResourceTable(answer).Json())
      .Add("demand", DemandTable(answer).Json())
      .Add("store", StoreJson(answer.store()))
      .Add("head", answer.words().empty() ? std::string("null") : JsonString(answer.words()))
      .Add("metrics_url", JsonString(answer.metrics_url()))
      .Add("features", features.Done())
      .Done();
}

std::string MemoryText(const proto::StateAnswer& answer, uint32_t limit) {
  struct Sum {
    uint64_t bytes = 0;
    uint64_t objects = 0;
  };
  std::map<uint64_t, Sum> by_owner;
  for (const proto::ObjectRow& row : answer.objects()) {
    by_owner[row.owner()].bytes += row.size_bytes();
    ++by_owner[row.owner()].objects;
  }
  std::vector<std::pair<uint64_t, Sum>> owners(by_owner.begin(), by_owner.end());
  std::stable_sort(owners.begin(), owners.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string out = StoreLine(answer.store());
  if (owners.empty()) return out;
  Listing owner_table{{{"OWNER", "owner"}, {"OBJECTS", "objects"}, {"SIZE", "size_bytes"}}, {}};
  for (const auto& [owner, sum] : owners) {
    owner_table.rows.push_back({ProcessCell(owner), CountCell(sum.objects), BytesCell(sum.bytes)});
  }
  Listing objects = ListingOf("objects", answer);
  const size_t all = objects.rows.size();
  if (limit > 0 && all > limit) objects.rows.resize(limit);
  absl::StrAppend(&out, "\n", owner_table.Text(), "\n", objects.Text());
  if (objects.rows.size() < all) {
    absl::StrAppend(&out, "(the largest ", FormatCount(limit), " of ", FormatCount(all),
                    "; more with --limit)\n");
  }
  return out;
}

int RunStatus(const QueryOptions& options) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STATUS);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) return Complain(absl::InternalError(answer->error()));
  std::printf("%s",
              options.json ? (StatusJson(*answer) + "\n").c_str() : StatusText(*answer).c_str());
  return kDone;
}

int RunMemory(const QueryOptions& options, uint32_t limit) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::OBJECTS);
  absl::StatusOr<proto::StateAnswer> answer = Ask(options, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) return Complain(absl::InternalError(answer->error()));
  // The largest first: that is what fills a store.
  auto& rows = *answer->mutable_objects();
  std::stable_sort(rows.pointer_begin(), rows.pointer_end(),
                   [](const auto* a, const auto* b) { return a->size_bytes() > b->size_bytes(); });
  if (options.json) {
    Listing objects = ListingOf("objects", *answer);
    const bool cut = limit > 0 && objects.rows.size() > limit;
    if (cut) objects.rows.resize(limit);
    const std::string json = JsonObject()
                                 .Add("store", StoreJson(answer->store()))
                                 .Add("objects", objects.Json())
                                 .Add("truncated", JsonBool(cut || answer->truncated()))
                                 .Done();
    std::printf("%s\n", json.c_str());
    return kDone;
  }
  std::fputs(MemoryText(*answer, limit).c_str(), stdout);
  return kDone;
}

int RunVersion(bool json) {
  const std::string version(kSheafVersion);
  // Too large for JSON numbers.
  const std::string layout = absl::StrCat(absl::Hex(kShmLayoutHash, absl::kZeroPad16));
  if (json) {
    std::printf("%s\n", JsonObject()
                            .Add("version", JsonString(version))
                            .Add("layout", JsonString(layout))
                            .Done()
                            .c_str());
  } else {
    std::printf("sheaf %s (layout %s)\n", version.c_str(), layout.c_str());
  }
  return kDone;
}

}  // namespace sheaf::cli
