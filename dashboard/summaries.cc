// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/summaries.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "base/text/json.h"

namespace sheaf::dashboard {
namespace {

using Counts = std::map<std::string, uint64_t>;

std::string CountsJson(const Counts& counts) {
  JsonObject object;
  for (const auto& [name, count] : counts) object.Add(name, JsonNumber(count));
  return object.Done();
}

// The envelope of a listing, around a summary of the cluster as a whole.
std::string SummaryAnswer(size_t count, bool truncated, const std::string& summary) {
  const std::string rows = JsonNumber(uint64_t{count});
  return DataAnswer(
      JsonObject()
          .Add("total", rows)
          .Add("num_after_truncation", rows)
          .Add("num_filtered", rows)
          .Add("result", JsonObject()
                             .Add("node_id_to_summary", JsonObject().Add("cluster", summary).Done())
                             .Done())
          .Add("partial_failure_warning", "\"\"")
          .Add("warnings", truncated
                               ? R"(["Only the first rows were counted; the cluster has more."])"
                               : "null")
          .Done());
}

}  // namespace

std::string TaskSummary(const proto::StateAnswer& answer) {
  struct Function {
    std::string type;
    Counts states;
  };
  std::map<std::string, Function> functions;  // Those of all jobs: so does Ray.
  std::map<std::string, uint64_t> totals;     // By type.
  for (const proto::FunctionRow& row : answer.functions()) {
    const std::string type = row.type();
    Function& function = functions[row.name()];
    function.type = type;
    const auto count = [&](const char* state, uint64_t number) {
      if (number == 0) return;
      function.states[state] += number;
      totals[type] += number;
    };
    count("PENDING_ARGS_AVAIL", row.waiting_for_arguments());
    count(type == "ACTOR_TASK" ? "PENDING_ACTOR_TASK_ARGS_FETCH" : "PENDING_NODE_ASSIGNMENT",
          row.waiting_for_place());
    count("SUBMITTED_TO_WORKER", row.pushed() - std::min(row.pushed(), row.running()));
    count("RUNNING", row.running());
    count("FINISHED", row.finished());
    count("FAILED", row.failed() + row.cancelled());
  }
  JsonObject summary;
  for (const auto& [key, function] : functions) {
    summary.Add(key, JsonObject()
                         .Add("func_or_class_name", JsonString(key))
                         .Add("type", JsonString(function.type))
                         .Add("state_counts", CountsJson(function.states))
                         .Done());
  }
  uint64_t all = 0;
  for (const auto& [type, number] : totals) all += number;
  return SummaryAnswer(all, answer.truncated(),
                       JsonObject()
                           .Add("summary", summary.Done())
                           .Add("total_tasks", JsonNumber(totals["NORMAL_TASK"]))
                           .Add("total_actor_tasks", JsonNumber(totals["ACTOR_TASK"]))
                           .Add("total_actor_scheduled", JsonNumber(totals["ACTOR_CREATION_TASK"]))
                           .Add("summary_by", "\"func_name\"")
                           .Done());
}

std::string ActorSummary(const StateTable& table) {
  const size_t name = ColumnOf(table, "class_name"), state = ColumnOf(table, "state");
  std::map<std::string, Counts> classes;
  for (const std::vector<Value>& row : table.rows) ++classes[row[name].text][row[state].text];
  JsonObject summary;
  for (const auto& [key, states] : classes) {
    summary.Add(key, JsonObject()
                         .Add("class_name", JsonString(key))
                         .Add("state_counts", CountsJson(states))
                         .Done());
  }
  return SummaryAnswer(table.rows.size(), table.truncated,
                       JsonObject()
                           .Add("summary", summary.Done())
                           .Add("total_actors", JsonNumber(uint64_t{table.rows.size()}))
                           .Add("summary_by", "\"class\"")
                           .Done());
}

std::string ObjectSummary(const StateTable& table) {
  struct Site {
    double megabytes = 0;
    uint64_t objects = 0;
    std::set<std::string> workers, nodes;
    Counts states, attempts, references;
  };
  const size_t site = ColumnOf(table, "call_site"), size = ColumnOf(table, "object_size"),
               state = ColumnOf(table, "task_status"), attempt = ColumnOf(table, "attempt_number"),
               reference = ColumnOf(table, "reference_type"), pid = ColumnOf(table, "pid"),
               ip = ColumnOf(table, "ip");
  std::map<std::string, Site> sites;
  double total = 0;
  for (const std::vector<Value>& row : table.rows) {
    Site& entry = sites[row[site].text];
    int64_t bytes = 0;
    (void)absl::SimpleAtoi(row[size].text, &bytes);  // Written by us.
    const double megabytes = static_cast<double>(bytes) / (1 << 20);
    entry.megabytes += megabytes;
    total += megabytes;
    ++entry.objects;
    entry.workers.insert(row[pid].text);
    entry.nodes.insert(row[ip].text);
    ++entry.states[row[state].text];
    ++entry.attempts[row[attempt].text];
    ++entry.references[row[reference].text];
  }
  JsonObject summary;
  for (const auto& [key, entry] : sites) {
    summary.Add(key, JsonObject()
                         .Add("total_objects", JsonNumber(entry.objects))
                         .Add("total_size_mb", JsonNumber(entry.megabytes))
                         .Add("total_num_workers", JsonNumber(uint64_t{entry.workers.size()}))
                         .Add("total_num_nodes", JsonNumber(uint64_t{entry.nodes.size()}))
                         .Add("task_state_counts", CountsJson(entry.states))
                         .Add("task_attempt_number_counts", CountsJson(entry.attempts))
                         .Add("ref_type_counts", CountsJson(entry.references))
                         .Done());
  }
  return SummaryAnswer(table.rows.size(), table.truncated,
                       JsonObject()
                           .Add("summary", summary.Done())
                           .Add("total_objects", JsonNumber(uint64_t{table.rows.size()}))
                           .Add("total_size_mb", JsonNumber(total))
                           .Add("callsite_enabled", "false")
                           .Add("summary_by", "\"callsite\"")
                           .Done());
}

}  // namespace sheaf::dashboard
