// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/listing.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/text/json.h"

namespace sheaf {
namespace {

template <class Numbers>
Cell NumberList(const Numbers& numbers) {
  return NumbersCell(std::vector<uint32_t>(numbers.begin(), numbers.end()));
}

Cell LabelsCell(const proto::NodeRow& node) {
  const std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
  JsonObject object;
  for (const auto& [key, value] : labels) object.Add(key, JsonString(value));
  return {Printable(absl::StrJoin(labels, ", ", absl::PairFormatter("="))), object.Done()};
}

Cell BundlesCell(const proto::GroupRow& group) {
  std::vector<std::string> texts;
  JsonArray array;
  for (const proto::Resources& bundle : group.bundles()) {
    const Cell cell = ResourcesCell(bundle);
    texts.push_back(absl::StrCat("{", cell.text, "}"));
    array.Add(cell.json);
  }
  return {absl::StrJoin(texts, " "), array.Done()};
}

// Amounts of 0 do not travel, but a node that has all of its CPUs lent has 0 of them.
proto::Resources AvailableOf(const proto::NodeRow& node) {
  proto::Resources available = node.available();
  for (const auto& [name, amount] : node.total().amounts())
    available.mutable_amounts()->insert({name, 0});
  return available;
}

Listing Nodes(const proto::StateAnswer& answer) {
  Listing table{{{"NODE", "node"},
                 {"STATE", "state"},
                 {"HOST", "host_name"},
                 {"ADDRESS", "address"},
                 {"AVAILABLE", "available"},
                 {"TOTAL", "total"},
                 {"LABELS", "labels"},
                 {"STARTED", "start_time_unix_s"},
                 {"VERSION", "version"}},
                {}};
  for (const proto::NodeRow& row : answer.nodes()) {
    table.rows.push_back({IdCell(row.node()), TextCell(row.state()), TextCell(row.host_name()),
                          TextCell(row.address()), ResourcesCell(AvailableOf(row)),
                          ResourcesCell(row.total()), LabelsCell(row),
                          TimeCell(row.start_time_unix_s()), TextCell(row.version())});
  }
  return table;
}

Listing Actors(const proto::StateAnswer& answer) {
  Listing table{{{"ACTOR", "actor_id"},
                 {"CLASS", "class_name"},
                 {"NAME", "name"},
                 {"NAMESPACE", "name_space"},
                 {"STATE", "state"},
                 {"PROCESS", "process"},
                 {"PID", "os_pid"},
                 {"RESTARTS", "restarts"},
                 {"JOB", "job"},
                 {"DETACHED", "detached"},
                 {"DEATH", "death"}},
                {}};
  for (const proto::ActorRow& row : answer.actors()) {
    table.rows.push_back({TextCell(row.actor_id()), TextCell(row.class_name()),
                          TextCell(row.name()), TextCell(row.name_space()), TextCell(row.state()),
                          ProcessCell(row.process()), IdCell(row.os_pid()),
                          CountCell(row.restarts()), IdCell(row.job()), FlagCell(row.detached()),
                          TextCell(row.death())});
  }
  return table;
}

// What only programs read: a column of empty texts is left out for people.
Cell JsonCell(std::string json) { return {"", std::move(json)}; }
Cell MillisecondsCell(int64_t unix_ms) {
  return JsonCell(unix_ms == 0 ? "null" : JsonNumber(unix_ms));
}

Cell DurationCell(Nanos duration) { return {FormatDuration(duration), JsonNumber(duration), true}; }

Cell RunCell(const proto::TaskRow& row) {
  if (row.begin_unix_ns() == 0 || row.end_unix_ns() == 0) return {"", "null"};
  return DurationCell(row.end_unix_ns() - row.begin_unix_ns());
}

Listing Tasks(const proto::StateAnswer& answer) {
  Listing table{{{"TASK", "task_id"},
                 {"NAME", "name"},
                 {"STATE", "state"},
                 {"ATTEMPT", "attempt"},
                 {"OWNER", "owner"},
                 {"WORKER", "worker"},
                 {"JOB", "job"},
                 {"ACTOR", "actor_id"},
                 {"ENDED", "end_time_unix_s"},
                 {"TOOK", "run_ns"},
                 {"OF", "weight"},
                 {"ERROR", "error_type"},
                 {"WAITS FOR", "words"},
                 {"", "type"},
                 {"", "os_pid"},
                 {"", "created_unix_ms"},
                 {"", "begin_unix_ms"},
                 {"", "end_unix_ms"},
                 {"", "error"}},
                {}};
  for (const proto::TaskRow& row : MergedTasks(answer)) {
    table.rows.push_back(
        {TextCell(row.task_id()), TextCell(row.name()), TextCell(row.state()),
         CountCell(row.attempt()), ProcessCell(row.owner()), ProcessCell(row.worker()),
         IdCell(row.job()), TextCell(row.actor_id()), TimeCell(row.end_unix_ns() / kSecond),
         RunCell(row), IdCell(row.weight() > 1 ? row.weight() : 0), TextCell(row.error_type()),
         TextCell(row.words()), JsonCell(JsonString(row.type())),
         JsonCell(IdCell(row.os_pid()).json), MillisecondsCell(row.created_unix_ms()),
         MillisecondsCell(row.begin_unix_ns() / kMillisecond),
         MillisecondsCell(row.end_unix_ns() / kMillisecond), JsonCell(JsonString(row.error()))});
  }
  return table;
}

Cell AgeCell(int64_t ms) {
  if (ms == 0) return {"", "null"};
  return {FormatCount(static_cast<uint64_t>(ms / 1000)) + " s", JsonNumber(ms / 1000), true};
}

Listing Objects(const proto::StateAnswer& answer) {
  Listing table{{{"OBJECT", "object_id"},
                 {"SIZE", "size_bytes"},
                 {"WHERE", "where"},
                 {"OWNER", "owner"},
                 {"LOCAL REFS", "local_refs"},
                 {"TASK REFS", "task_refs"},
                 {"BORROWING NODES", "borrowing_nodes"},
                 {"AGE", "age_s"},
                 {"MAY LEAK", "may_leak"}},
                {}};
  for (const proto::ObjectRow& row : answer.objects()) {
    table.rows.push_back({TextCell(row.object_id()),
                          BytesCell(row.size_bytes()),
                          TextCell(row.where()),
                          ProcessCell(row.owner()),
                          CountCell(row.local_refs()),
                          CountCell(row.task_refs()),
                          CountCell(row.borrowing_nodes()),
                          AgeCell(row.age_ms()),
                          {row.may_leak() ? "true" : "", JsonBool(row.may_leak())}});
  }
  return table;
}

Listing Jobs(const proto::StateAnswer& answer) {
  Listing table{{{"JOB", "job"},
                 {"STATE", "state"},
                 {"DRIVER", "driver"},
                 {"PID", "os_pid"},
                 {"NAMESPACE", "name_space"},
                 {"STARTED", "start_time_unix_s"},
                 {"COMMAND", "entrypoint"}},
                {}};
  for (const proto::JobRow& row : answer.jobs()) {
    table.rows.push_back({IdCell(row.job()), TextCell(row.state()), ProcessCell(row.driver()),
                          IdCell(row.os_pid()), TextCell(row.name_space()),
                          TimeCell(row.start_time_unix_s()), TextCell(row.entrypoint())});
  }
  return table;
}

Listing Groups(const proto::StateAnswer& answer) {
  Listing table{{{"GROUP", "group_id"},
                 {"NAME", "name"},
                 {"STATE", "state"},
                 {"PLACEMENT", "placement"},
                 {"BUNDLES", "bundles"},
                 {"NODES", "bundle_nodes"},
                 {"DETACHED", "detached"}},
                {}};
  for (const proto::GroupRow& row : answer.groups()) {
    table.rows.push_back({TextCell(row.group_id()), TextCell(row.name()), TextCell(row.state()),
                          TextCell(row.placement()), BundlesCell(row),
                          NumberList(row.bundle_nodes()), FlagCell(row.detached())});
  }
  return table;
}

Listing Workers(const proto::StateAnswer& answer) {
  Listing table{{{"WORKER", "process"},
                 {"PID", "os_pid"},
                 {"STATE", "state"},
                 {"JOB", "job"},
                 {"OWNER", "owner"},
                 {"RUNNING", "running"},
                 {"", "node"}},
                {}};
  for (const proto::WorkerRow& row : answer.workers()) {
    table.rows.push_back({ProcessCell(row.process()), IdCell(row.os_pid()), TextCell(row.state()),
                          IdCell(row.job()), ProcessCell(row.owner()), TextCell(row.running()),
                          JsonCell(JsonNumber(uint64_t{ProcessId::Unpack(row.process()).node}))});
  }
  return table;
}

uint64_t WaitingOf(const proto::FunctionRow& row) {
  return row.waiting_for_arguments() + row.waiting_for_place() +
         (row.pushed() - std::min(row.pushed(), row.running()));
}

Listing Functions(const proto::StateAnswer& answer) {
  Listing table{{{"FUNCTION", "name"},
                 {"TYPE", "type"},
                 {"JOB", "job"},
                 {"WAITING", "waiting"},
                 {"RUNNING", "running"},
                 {"FINISHED", "finished"},
                 {"FAILED", "failed"},
                 {"CANCELLED", "cancelled"},
                 {"MEAN", "mean_ns"},
                 {"LONGEST", "longest_ns"},
                 {"", "waiting_for_arguments"},
                 {"", "waiting_for_place"},
                 {"", "timed"},
                 {"", "run_time"}},
                {}};
  for (const proto::FunctionRow& row : answer.functions()) {
    const auto mean = static_cast<Nanos>(row.run_ns() / std::max<uint64_t>(1, row.timed()));
    JsonArray run_time;  // Calls by the power of two of their time: telemetry/task_events.h.
    for (const uint64_t count : row.run_time()) run_time.Add(JsonNumber(count));
    table.rows.push_back({TextCell(row.name()), TextCell(row.type()), IdCell(row.job()),
                          CountCell(WaitingOf(row)), CountCell(row.running()),
                          CountCell(row.finished()), CountCell(row.failed()),
                          CountCell(row.cancelled()), DurationCell(mean),
                          DurationCell(static_cast<Nanos>(row.longest_ns())),
                          JsonCell(JsonNumber(uint64_t{row.waiting_for_arguments()})),
                          JsonCell(JsonNumber(uint64_t{row.waiting_for_place()})),
                          JsonCell(JsonNumber(uint64_t{row.timed()})), JsonCell(run_time.Done())});
  }
  return table;
}

Listing Events(const proto::StateAnswer& answer) {
  Listing table{{{"TIME", "time_unix_s"},
                 {"SEVERITY", "severity"},
                 {"KIND", "kind"},
                 {"NODE", "node"},
                 {"JOB", "job"},
                 {"ID", "id"},
                 {"MESSAGE", "message"}},
                {}};
  for (const proto::EventRow& row : answer.events()) {
    table.rows.push_back({TimeCell(row.unix_ms() / 1000),
                          TextCell(proto::EventRow::Severity_Name(row.severity())),
                          TextCell(proto::EventRow::Kind_Name(row.kind())), IdCell(row.node()),
                          IdCell(row.job()), TextCell(row.id()), TextCell(row.message())});
  }
  return table;
}

struct Kind {
  proto::StateQuery::What what;
  Listing (*table)(const proto::StateAnswer& answer);
};
// In the order of kListKinds.
constexpr std::array<Kind, kListKinds.size()> kKinds = {{{proto::StateQuery::NODES, Nodes},
                                                         {proto::StateQuery::ACTORS, Actors},
                                                         {proto::StateQuery::TASKS, Tasks},
                                                         {proto::StateQuery::OBJECTS, Objects},
                                                         {proto::StateQuery::JOBS, Jobs},
                                                         {proto::StateQuery::GROUPS, Groups},
                                                         {proto::StateQuery::WORKERS, Workers},
                                                         {proto::StateQuery::FUNCTIONS, Functions},
                                                         {proto::StateQuery::EVENTS, Events}}};

const Kind& KindOf(std::string_view name) {
  const auto found = std::find(kListKinds.begin(), kListKinds.end(), name);
  return kKinds[found == kListKinds.end() ? 0 : static_cast<size_t>(found - kListKinds.begin())];
}

}  // namespace

std::vector<proto::TaskRow> MergedTasks(const proto::StateAnswer& answer) {
  std::vector<proto::TaskRow> merged;
  absl::flat_hash_map<std::string, size_t> places;
  for (const proto::TaskRow& row : answer.tasks()) {
    const auto [place, first] =
        places.emplace(absl::StrCat(row.task_id(), "/", row.attempt()), merged.size());
    if (first) {
      merged.push_back(row);
      continue;
    }
    proto::TaskRow& known = merged[place->second];
    const bool ended = known.end_unix_ns() != 0 || row.end_unix_ns() != 0;
    const std::string state = known.end_unix_ns() != 0 ? known.state() : row.state();
    const bool runs = known.state() == "RUNNING" || row.state() == "RUNNING";
    known.MergeFrom(row);  // Fields that `row` leaves empty stay.
    if (ended) {
      known.set_state(state);
      known.clear_words();
    } else if (runs) {
      known.set_state("RUNNING");
      known.clear_words();
    }
  }
  return merged;
}

Listing ListingOf(std::string_view kind, const proto::StateAnswer& answer) {
  return KindOf(kind).table(answer);
}

proto::StateQuery ListQuery(std::string_view kind) {
  proto::StateQuery query;
  query.set_what(KindOf(kind).what);
  return query;
}

std::string ListJson(std::string_view kind, const Listing& table, const proto::StateAnswer& answer,
                     bool truncated) {
  return JsonObject()
      .Add(absl::StrReplaceAll(std::string(kind), {{"-", "_"}}), table.Json())
      .Add("truncated", JsonBool(truncated))
      .Add("late_nodes", NumberList(answer.late_nodes()).json)
      .Done();
}

}  // namespace sheaf
