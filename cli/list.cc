// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/list.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/text/json.h"

namespace sheaf::cli {
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

Table Nodes(const proto::StateAnswer& answer) {
  Table table{{{"NODE", "node"},
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

Table Actors(const proto::StateAnswer& answer) {
  Table table{{{"ACTOR", "actor_id"},
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

Cell DurationCell(Nanos duration) { return {FormatDuration(duration), JsonNumber(duration), true}; }

Cell RunCell(const proto::TaskRow& row) {
  if (row.begin_unix_ns() == 0 || row.end_unix_ns() == 0) return {"", "null"};
  return DurationCell(row.end_unix_ns() - row.begin_unix_ns());
}

Table Tasks(const proto::StateAnswer& answer) {
  Table table{{{"TASK", "task_id"},
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
               {"WAITS FOR", "words"}},
              {}};
  for (const proto::TaskRow& row : MergedTasks(answer)) {
    table.rows.push_back({TextCell(row.task_id()), TextCell(row.name()), TextCell(row.state()),
                          CountCell(row.attempt()), ProcessCell(row.owner()),
                          ProcessCell(row.worker()), IdCell(row.job()), TextCell(row.actor_id()),
                          TimeCell(row.end_unix_ns() / kSecond), RunCell(row),
                          IdCell(row.weight() > 1 ? row.weight() : 0), TextCell(row.error_type()),
                          TextCell(row.words())});
  }
  return table;
}

Table Objects(const proto::StateAnswer& answer) {
  Table table{{{"OBJECT", "object_id"},
               {"SIZE", "size_bytes"},
               {"WHERE", "where"},
               {"OWNER", "owner"},
               {"LOCAL REFS", "local_refs"},
               {"TASK REFS", "task_refs"},
               {"BORROWING NODES", "borrowing_nodes"}},
              {}};
  for (const proto::ObjectRow& row : answer.objects()) {
    table.rows.push_back({TextCell(row.object_id()), BytesCell(row.size_bytes()),
                          TextCell(row.where()), ProcessCell(row.owner()),
                          CountCell(row.local_refs()), CountCell(row.task_refs()),
                          CountCell(row.borrowing_nodes())});
  }
  return table;
}

Table Jobs(const proto::StateAnswer& answer) {
  Table table{{{"JOB", "job"},
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

Table Groups(const proto::StateAnswer& answer) {
  Table table{{{"GROUP", "group_id"},
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

Table Workers(const proto::StateAnswer& answer) {
  Table table{{{"WORKER", "process"},
               {"PID", "os_pid"},
               {"STATE", "state"},
               {"JOB", "job"},
               {"OWNER", "owner"},
               {"RUNNING", "running"}},
              {}};
  for (const proto::WorkerRow& row : answer.workers()) {
    table.rows.push_back({ProcessCell(row.process()), IdCell(row.os_pid()), TextCell(row.state()),
                          IdCell(row.job()), ProcessCell(row.owner()), TextCell(row.running())});
  }
  return table;
}

uint64_t WaitingOf(const proto::FunctionRow& row) {
  return row.waiting_for_arguments() + row.waiting_for_place() +
         (row.pushed() - std::min(row.pushed(), row.running()));
}

Table Functions(const proto::StateAnswer& answer) {
  Table table{{{"FUNCTION", "name"},
               {"TYPE", "type"},
               {"JOB", "job"},
               {"WAITING", "waiting"},
               {"RUNNING", "running"},
               {"FINISHED", "finished"},
               {"FAILED", "failed"},
               {"CANCELLED", "cancelled"},
               {"MEAN", "mean_ns"},
               {"LONGEST", "longest_ns"}},
              {}};
  for (const proto::FunctionRow& row : answer.functions()) {
    const auto mean = static_cast<Nanos>(row.run_ns() / std::max<uint64_t>(1, row.timed()));
    table.rows.push_back({TextCell(row.name()), TextCell(row.type()), IdCell(row.job()),
                          CountCell(WaitingOf(row)), CountCell(row.running()),
                          CountCell(row.finished()), CountCell(row.failed()),
                          CountCell(row.cancelled()), DurationCell(mean),
                          DurationCell(static_cast<Nanos>(row.longest_ns()))});
  }
  return table;
}

Table Events(const proto::StateAnswer& answer) {
  Table table{{{"TIME", "time_unix_s"},
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
  Table (*table)(const proto::StateAnswer& answer);
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

Table TableOf(std::string_view kind, const proto::StateAnswer& answer) {
  return KindOf(kind).table(answer);
}

proto::StateQuery ListQuery(std::string_view kind) {
  proto::StateQuery query;
  query.set_what(KindOf(kind).what);
  return query;
}

std::string ListJson(std::string_view kind, const proto::StateAnswer& answer) {
  return JsonObject()
      .Add(absl::StrReplaceAll(std::string(kind), {{"-", "_"}}), TableOf(kind, answer).Json())
      .Add("truncated", JsonBool(answer.truncated()))
      .Add("late_nodes", NumberList(answer.late_nodes()).json)
      .Done();
}

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
  const Table table = TableOf(options.kind, *answer);
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
