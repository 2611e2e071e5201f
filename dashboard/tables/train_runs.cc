// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/train_runs.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/gcs_question.h"
#include "http/json.h"
#include "proto/gcs.pb.h"

namespace sheaf::dashboard {
namespace {

namespace json = boost::json;

constexpr char kSpace[] = "sheaf-train-runs";
constexpr char kRun[] = "run/", kGroup[] = "group/", kHistory[] = "history/";
constexpr size_t kMostRuns = 1000;
constexpr uint64_t kMostRunBytes = 32 << 10;  // Several times what sheaf.train writes.
constexpr char kUnreadable[] = "its record cannot be read";
constexpr char kDied[] = "its driver died", kLeft[] = "its driver has ended";
constexpr char kSilent[] = ", and has not said how the run ended";

// Values by key; what is not there is left out.
using Values = std::map<std::string, std::string, std::less<>>;

absl::StatusOr<proto::GcsReply> AskFor(const AskNode& ask, const proto::GcsRequest& request,
                                       Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(proto::GcsReply reply, AskGcs(ask, request, timeout));
  if (reply.error() != 0) return absl::UnavailableError(reply.message());
  return reply;
}

absl::StatusOr<Values> ValuesOf(const AskNode& ask, const std::vector<std::string>& keys,
                                Nanos timeout) {
  Values values;
  if (keys.empty()) return values;
  proto::GcsRequest request;
  request.mutable_kv_get()->set_name_space(kSpace);
  for (const std::string& key : keys) request.mutable_kv_get()->add_keys(key);
  SHEAF_ASSIGN_OR_RETURN(const proto::GcsReply reply, AskFor(ask, request, timeout));
  for (const proto::KvEntry& entry : reply.kv_values().entries())
    values[entry.key()] = entry.value();
  return values;
}

// The ids of the runs that there are, newest first, and whether their records may be read: anybody may
// have put a key there.
absl::StatusOr<std::vector<std::pair<std::string, bool>>> Ids(const AskNode& ask, Nanos timeout) {
  proto::GcsRequest request;
  request.mutable_kv_list()->set_name_space(kSpace);
  request.mutable_kv_list()->set_prefix(kRun);
  SHEAF_ASSIGN_OR_RETURN(const proto::GcsReply reply, AskFor(ask, request, timeout));
  std::vector<std::pair<std::string, bool>> ids;
  for (const proto::KvListing::Entry& entry : reply.kv_listing().entries())
    ids.emplace_back(entry.key().substr(std::size(kRun) - 1), entry.bytes() <= kMostRunBytes);
  std::reverse(ids.begin(), ids.end());
  ids.resize(std::min(ids.size(), kMostRuns));
  return ids;
}

// What a record says of itself. Others than sheaf.train may have written it.
class Record {
 public:
  explicit Record(std::string_view text) {
    absl::StatusOr<json::value> parsed = http::ParseJson(text);
    if (parsed.ok() && parsed->is_object()) value_ = *std::move(parsed);
  }
  bool readable() const { return value_.is_object(); }
  std::string Text(const char* key) const {
    const json::value* const found = Find(key);
    return found == nullptr || !found->is_string() ? "" : TextOf(*found);
  }
  // 0: there is none.
  int64_t Number(const char* key) const {
    const json::value* const found = Find(key);
    return found == nullptr || !found->is_int64() ? 0 : std::max<int64_t>(0, found->get_int64());
  }
  Cell Metrics() const {
    const json::value* const found = Find("metrics");
    if (found == nullptr || !found->is_object()) return {"", "{}"};
    std::vector<std::string> words;
    for (const auto& [name, value] : found->get_object()) {
      const std::string text = value.is_double()   ? absl::StrCat(value.get_double())
                               : value.is_string() ? TextOf(value)
                                                   : json::serialize(value);
      words.push_back(absl::StrCat(std::string(name), " ", text));
    }
    return {Printable(absl::StrJoin(words, ", ")), json::serialize(*found)};
  }

 private:
  static std::string TextOf(const json::value& value) {
    return std::string(value.get_string().data(), value.get_string().size());
  }
  const json::value* Find(const char* key) const {
    return readable() ? value_.get_object().if_contains(key) : nullptr;
  }

  json::value value_;
};

// Those that drive runs.
struct Drivers {
  std::set<std::string> names;  // Of the drivers and workers that there are.
  struct End {
    int64_t unix_s;  // 0: not known.
    bool died;
  };
  std::map<std::string, End> ended;  // Of the other drivers.
};

// Nothing: some node has not said which it has.
absl::StatusOr<std::optional<Drivers>> FindDrivers(const AskNode& ask, Nanos timeout) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::JOBS);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer jobs, Asked(ask, query, timeout));
  query.set_what(proto::StateQuery::WORKERS);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer workers, Asked(ask, query, timeout));
  if (jobs.truncated() || workers.truncated() || workers.late_nodes_size() != 0)
    return std::nullopt;
  Drivers drivers;
  for (const proto::JobRow& row : jobs.jobs()) {
    const std::string name = ProcessId::Unpack(row.driver()).ToString();
    if (row.state() == "RUNNING") {
      drivers.names.insert(name);
    } else {
      drivers.ended[name] = {row.end_time_unix_s(), row.state() == "FAILED"};
    }
  }
  for (const proto::WorkerRow& row : workers.workers())
    drivers.names.insert(ProcessId::Unpack(row.process()).ToString());
  return drivers;
}

// How a run ended that did not say so itself.
struct Abort {
  int64_t unix_s = 0;  // When it was over, or was heard last.
  std::string message;
};

Abort AbortOf(const Record& record, const Drivers& drivers) {
  const auto ended = drivers.ended.find(record.Text("driver"));
  const bool is_known = ended != drivers.ended.end();  // Else it was a worker, or is long gone.
  const std::string what = absl::StrCat(is_known && ended->second.died ? kDied : kLeft, kSilent);
  if (is_known && ended->second.unix_s != 0) {
    const int64_t at = ended->second.unix_s;
    return {at, absl::StrCat(what, ", at ", TimeCell(at).text)};
  }
  const int64_t heard = std::max(record.Number("reported_ms"), record.Number("start_ms")) / 1000;
  return {heard, absl::StrCat(what, "; it was heard last at ", TimeCell(heard).text)};
}

Cell PathCell(const std::string& path) {
  return {Printable(path.substr(path.rfind('/') + 1)), path.empty() ? "null" : JsonString(path)};
}
Cell NumberCell(int64_t number) {  // For programs only.
  return {"", number == 0 ? "null" : JsonNumber(number)};
}

std::vector<Cell> RowOf(const std::string& id, const Record& record,
                        const std::optional<Abort>& abort) {
  const auto counted = [&](const char* key) {
    return CountCell(static_cast<uint64_t>(record.Number(key)));
  };
  const std::string state = !record.readable() ? "UNKNOWN"
                            : abort            ? "ABORTED"
                                               : record.Text("state");
  const std::string message = !record.readable() ? kUnreadable
                              : abort            ? abort->message
                                                 : record.Text("message");
  const std::string driver = record.Text("driver");
  return {TextCell(id),
          TextCell(record.Text("name")),
          TextCell(state),
          IdCell(static_cast<uint64_t>(record.Number("job"))),
          {Printable(driver), driver.empty() ? "null" : JsonString(driver)},
          counted("workers"),
          counted("attempts"),
          counted("steps"),
          TimeCell(record.Number("start_ms") / 1000),
          TimeCell(abort ? abort->unix_s : record.Number("end_ms") / 1000),
          record.Metrics(),
          PathCell(record.Text("checkpoint")),
          TextCell(message),
          {"", JsonString(record.Text("path"))},
          NumberCell(record.Number("checkpoint_step")),
          NumberCell(record.Number("reported_ms"))};
}

Listing EmptyTable() {
  return {{{"RUN", "run_id"},
           {"NAME", "name"},
           {"STATE", "state"},
           {"JOB", "job"},
           {"DRIVER", "driver"},
           {"WORKERS", "workers"},
           {"FORMED", "attempts"},
           {"STEPS", "steps"},
           {"STARTED", "start_time_unix_s"},
           {"ENDED", "end_time_unix_s"},
           {"METRICS", "metrics"},
           {"CHECKPOINT", "checkpoint"},
           {"MESSAGE", "message"},
           {"", "path"},
           {"", "checkpoint_step"},
           {"", "reported_unix_ms"}},
          {}};
}

// The rows of `records`, with their ids.
absl::StatusOr<Listing> TableOf(const AskNode& ask,
                                const std::vector<std::pair<std::string, Record>>& records,
                                Nanos timeout) {
  const auto runs = [](const Record& record) { return record.Text("state") == "RUNNING"; };
  std::optional<Drivers> drivers;
  if (std::any_of(records.begin(), records.end(),
                  [&](const auto& one) { return runs(one.second); })) {
    SHEAF_ASSIGN_OR_RETURN(drivers, FindDrivers(ask, timeout));
  }
  Listing table = EmptyTable();
  for (const auto& [id, record] : records) {
    std::optional<Abort> abort;
    if (runs(record) && drivers && !drivers->names.contains(record.Text("driver"))) {
      abort = AbortOf(record, *drivers);
    }
    table.rows.push_back(RowOf(id, record, abort));
  }
  return table;
}

// An object as it is, or an empty one.
std::string ObjectIn(const Values& values, const std::string& key) {
  const auto found = values.find(key);
  return found != values.end() && Record(found->second).readable() ? found->second : "{}";
}

}  // namespace

absl::StatusOr<Listing> ListTrainRuns(const AskNode& ask, Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(const auto ids, Ids(ask, timeout));
  std::vector<std::string> keys;
  for (const auto& [id, may_be_read] : ids) {
    if (may_be_read) keys.push_back(absl::StrCat(kRun, id));
  }
  SHEAF_ASSIGN_OR_RETURN(const Values values, ValuesOf(ask, keys, timeout));
  std::vector<std::pair<std::string, Record>> records;
  for (const auto& [id, may_be_read] : ids) {
    const auto found = values.find(absl::StrCat(kRun, id));
    if (found != values.end() || !may_be_read)  // Else it went meanwhile.
      records.emplace_back(id, Record(may_be_read ? found->second : ""));
  }
  return TableOf(ask, records, timeout);
}

absl::StatusOr<std::string> TrainRunJson(const AskNode& ask, const std::string& id, Nanos timeout) {
  const std::vector<std::string> keys = {absl::StrCat(kRun, id), absl::StrCat(kGroup, id),
                                         absl::StrCat(kHistory, id)};
  SHEAF_ASSIGN_OR_RETURN(const Values values, ValuesOf(ask, keys, timeout));
  const auto found = values.find(keys[0]);
  if (found == values.end()) {
    return absl::NotFoundError(absl::StrCat("There is no training run ", id.substr(0, 80),
                                            ": the last ", kMostRuns, " are kept."));
  }
  std::vector<std::pair<std::string, Record>> records;
  records.emplace_back(id, Record(found->second));
  SHEAF_ASSIGN_OR_RETURN(const Listing table, TableOf(ask, records, timeout));
  return JsonObject()
      .Add("rows", table.Json())
      .Add("group", ObjectIn(values, keys[1]))
      .Add("history", ObjectIn(values, keys[2]))
      .Done();
}

}  // namespace sheaf::dashboard
