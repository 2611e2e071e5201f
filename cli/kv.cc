// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/kv.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/tables/cells.h"
#include "proto/gcs.pb.h"

namespace sheaf::cli {
namespace {

constexpr uint32_t kNoJobYet = UINT32_MAX;  // See KvPut.

absl::StatusOr<proto::GcsReply> AskGcs(const KvOptions& options, const proto::GcsRequest& request) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::KEY_VALUE);
  query.set_key_value(request.SerializeAsString());
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Ask(options.query, query));
  proto::GcsReply reply;
  if (!answer.error().empty()) return absl::InternalError(answer.error());
  if (answer.key_value().empty())
    return absl::DeadlineExceededError("the head did not answer in time; ask again");
  if (!reply.ParseFromString(answer.key_value()))
    return absl::InternalError("the node gave an answer that cannot be read");
  if (reply.error() != 0) return absl::InternalError(reply.message());
  return reply;
}

std::string Named(const KvOptions& options) {
  return absl::StrCat("'", Printable(options.key), "' in the name space '",
                      Printable(options.name_space.value_or("")), "'");
}

}  // namespace

int RunKvList(const KvOptions& options) {
  proto::GcsRequest request;
  proto::KvList& list = *request.mutable_kv_list();
  list.set_all_name_spaces(!options.name_space.has_value());
  list.set_name_space(options.name_space.value_or(""));
  list.set_prefix(options.key);
  list.set_limit(options.limit);
  const absl::StatusOr<proto::GcsReply> reply = AskGcs(options, request);
  if (!reply.ok()) return Complain(reply.status());
  const proto::KvListing& listing = reply->kv_listing();
  Listing table{{{"NAMESPACE", "name_space"},
                 {"KEY", "key"},
                 {"SIZE", "bytes"},
                 {"JOBS", "jobs"},
                 {"UPLOADED", "uploaded"}},
                {}};
  for (const proto::KvListing::Entry& entry : listing.entries()) {
    std::vector<uint32_t> jobs(entry.owners().begin(), entry.owners().end());
    const bool uploaded = std::erase(jobs, kNoJobYet) != 0;
    table.rows.push_back({TextCell(entry.name_space()), TextCell(entry.key()),
                          BytesCell(entry.bytes()), NumbersCell(jobs), FlagCell(uploaded)});
  }
  const auto listed = static_cast<uint64_t>(listing.entries_size());
  if (options.query.json) {
    std::printf("%s\n", JsonObject()
                            .Add("keys", table.Json())
                            .Add("truncated", JsonBool(listed < listing.keys()))
                            .Add("matching_keys", JsonNumber(uint64_t{listing.keys()}))
                            .Add("matching_bytes", JsonNumber(uint64_t{listing.bytes()}))
                            .Add("store_bytes", JsonNumber(uint64_t{listing.store_bytes()}))
                            .Add("store_capacity", JsonNumber(uint64_t{listing.store_capacity()}))
                            .Done()
                            .c_str());
    return kDone;
  }
  if (!table.rows.empty()) std::fputs(table.Text().c_str(), stdout);
  if (listed < listing.keys()) {
    std::printf("... and %s more; see --limit\n", FormatCount(listing.keys() - listed).c_str());
  }
  std::printf("%s keys with %s; the store holds %s of %s.\n", FormatCount(listing.keys()).c_str(),
              FormatBytes(listing.bytes()).c_str(), FormatBytes(listing.store_bytes()).c_str(),
              FormatBytes(listing.store_capacity()).c_str());
  return kDone;
}

int RunKvGet(const KvOptions& options) {
  proto::GcsRequest request;
  request.mutable_kv_get()->set_name_space(options.name_space.value_or(""));
  request.mutable_kv_get()->add_keys(options.key);
  const absl::StatusOr<proto::GcsReply> reply = AskGcs(options, request);
  if (!reply.ok()) return Complain(reply.status());
  if (reply->kv_values().entries().empty()) {
    Complain(absl::InternalError(
        absl::StrCat("there is no key ", Named(options), "; sheaf kv list shows those there are")));
    return kNotThere;
  }
  const std::string& value = reply->kv_values().entries(0).value();
  const std::string out = options.query.json ? JsonString(value) + "\n" : value;
  return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0
             ? kDone
             : kFailed;
}

int RunKvDelete(const KvOptions& options) {
  proto::GcsRequest request;
  request.mutable_kv_delete()->set_name_space(options.name_space.value_or(""));
  request.mutable_kv_delete()->set_key(options.key);
  request.mutable_kv_delete()->set_prefix(options.prefix);
  const absl::StatusOr<proto::GcsReply> reply = AskGcs(options, request);
  if (!reply.ok()) return Complain(reply.status());
  const uint64_t count = reply->kv_count().count();
  if (options.query.json) {
    std::printf("%s\n", JsonObject().Add("deleted", JsonNumber(count)).Done().c_str());
  } else if (count > 0) {
    std::printf("Deleted %s keys.\n", FormatCount(count).c_str());
  }
  if (count > 0) return kDone;
  Complain(absl::InternalError(
      absl::StrCat(options.prefix ? "no key begins with " : "there is no key ", Named(options))));
  return kNotThere;
}

}  // namespace sheaf::cli
