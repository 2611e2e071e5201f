// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/state_rows.h"

#include <array>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "base/text/json.h"
#include "dashboard/event_rows.h"

namespace sheaf::dashboard {
namespace {

Value NodeId(uint64_t process) {
  return process == 0 ? Value{} : Value::Text(NodeIdText(ProcessId::Unpack(process).node));
}
Value JobId(uint32_t job) { return Value::Text(absl::StrCat(absl::Hex(job, absl::kZeroPad8))); }
Value WorkerId(uint64_t process) {
  return process == 0 ? Value{} : Value::Text(absl::StrCat(absl::Hex(process, absl::kZeroPad16)));
}
Value Pid(int32_t pid) { return pid == 0 ? Value{} : Value::Number(pid); }

absl::flat_hash_map<uint32_t, std::string> HostsOf(const proto::StateAnswer& nodes) {
  absl::flat_hash_map<uint32_t, std::string> hosts;
  for (const proto::NodeRow& row : nodes.nodes()) hosts[row.node()] = HostOfAddress(row.address());
  return hosts;
}

absl::flat_hash_map<uint64_t, int32_t> PidsOf(const Answers& answers) {
  absl::flat_hash_map<uint64_t, int32_t> pids;
  for (const proto::WorkerRow& row : answers.workers.workers()) pids[row.process()] = row.os_pid();
  for (const proto::JobRow& row : answers.jobs.jobs()) pids[row.driver()] = row.os_pid();
  return pids;
}

// Of a map from numbers; `otherwise` where there is none.
template <class Map, class Number, class Found>
Found Look(const Map& map, Number number, Found otherwise) {
  const auto found = map.find(number);
  return found == map.end() ? otherwise : found->second;
}

// In whole units, as programs know them.
std::string ResourcesJson(const proto::Resources& resources) {
  const std::map<std::string, int64_t> sorted(resources.amounts().begin(),
                                              resources.amounts().end());
  JsonObject object;
  for (const auto& [name, amount] : sorted) {
    object.Add(name, JsonAmount(name, amount));
  }
  return object.Done();
}

std::string_view ActorStateName(std::string_view state) {
  return state == "PENDING" || state == "STARTING" ? "PENDING_CREATION" : state;
}

std::string_view TaskStateName(std::string_view state) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kNames = {
      {{"WAITING_FOR_ARGUMENTS", "PENDING_ARGS_AVAIL"},
       {"WAITING_FOR_LEASE", "PENDING_NODE_ASSIGNMENT"},
       {"WAITING_FOR_ACTOR", "PENDING_ACTOR_TASK_ARGS_FETCH"},
       {"PUSHED", "SUBMITTED_TO_WORKER"},
       {"CANCELLED", "FAILED"}}};
  for (const auto& [ours, theirs] : kNames) {
    if (state == ours) return theirs;
  }
  return state;
}

Value Milliseconds(int64_t unix_ms) { return unix_ms == 0 ? Value{} : Value::Number(unix_ms); }

std::string_view JobStateName(std::string_view state) {
  return state == "FINISHED" ? "SUCCEEDED" : state;
}

StateTable Actors(const Answers& answers) {
  StateTable table{{{"actor_id"},
                    {"class_name"},
                    {"state"},
                    {"job_id"},
                    {"name"},
                    {"node_id"},
                    {"pid"},
                    {"ray_namespace"},
                    {"serialized_runtime_env", false, true},
                    {"required_resources", false, true},
                    {"death_cause", false, true},
                    {"is_detached", false, true},
                    {"placement_group_id", true, true},
                    {"repr_name", true, true},
                    {"num_restarts", false, true},
                    {"num_restarts_due_to_lineage_reconstruction", false, true},
                    {"num_restarts_due_to_node_preemption", false, true},
                    {"call_site", false, true},
                    {"label_selector", false, true},
                    {"fallback_strategy", false, true}},
                   {}};
  // An actor's creator knows neither of these; the node of its process does.
  const auto pids = PidsOf(answers);
  absl::flat_hash_map<uint64_t, uint32_t> jobs;
  for (const proto::WorkerRow& row : answers.workers.workers()) jobs[row.process()] = row.job();
  for (const proto::ActorRow& row : answers.rows.actors()) {
    const uint32_t job = row.job() != 0 ? row.job() : Look(jobs, row.process(), uint32_t{0});
    const int32_t pid = row.os_pid() != 0 ? row.os_pid() : Look(pids, row.process(), int32_t{0});
    const Value death =
        row.death().empty()
            ? Value{}
            : Value::Json(JsonObject().Add("error_message", JsonString(row.death())).Done());
    // Ray's clients take no null for the two kinds of restarts that are not counted here.
    table.rows.push_back({Value::Text(row.actor_id()),
                          Value::Text(row.class_name()),
                          Value::Text(ActorStateName(row.state())),
                          JobId(job),
                          Value::Text(row.name()),
                          NodeId(row.process()),
                          Pid(pid),
                          Value::Text(row.name_space()),
                          Value{},
                          Value{},
                          death,
                          Value::Flag(row.detached()),
                          Value{},
                          Value{},
                          Value::Number(row.restarts()),
                          Value::Number(0),
                          Value::Number(0),
                          Value{},
                          Value{},
                          Value{}});
  }
  return table;
}

StateTable Nodes(const Answers& answers) {
  StateTable table{{{"node_id"},
                    {"node_ip"},
                    {"is_head_node"},
                    {"state"},
                    {"state_message", false},
                    {"node_name"},
                    {"resources_total", false},
                    {"labels", false},
                    {"start_time_ms", false, true},
                    {"end_time_ms", false, true}},
                   {}};
  for (const proto::NodeRow& row : answers.rows.nodes()) {
    const std::map<std::string, std::string> sorted(row.labels().begin(), row.labels().end());
    JsonObject labels;
    for (const auto& [name, value] : sorted) labels.Add(name, JsonString(value));
    const bool dead = row.state() == "DEAD";
    const bool drains = row.state() == "DRAINING" || row.state() == "DRAINED";
    table.rows.push_back({Value::Text(NodeIdText(row.node())),
                          Value::Text(HostOfAddress(row.address())), Value::Flag(row.is_head()),
                          Value::Text(dead ? "DEAD" : "ALIVE"),
                          drains ? Value::Text(row.state()) : Value{}, Value::Text(row.host_name()),
                          Value::Json(ResourcesJson(row.total())), Value::Json(labels.Done()),
                          Value::Number(row.start_time_unix_s() * 1000), Value{}});
  }
  return table;
}

StateTable Workers(const Answers& answers) {
  StateTable table{{{"worker_id"},
                    {"is_alive"},
                    {"worker_type"},
                    {"exit_type"},
                    {"node_id"},
                    {"ip"},
                    {"pid"},
                    {"exit_detail", false, true},
                    {"worker_launch_time_ms", false, true},
                    {"worker_launched_time_ms", false, true},
                    {"start_time_ms", false, true},
                    {"end_time_ms", false, true},
                    {"debugger_port", true, true},
                    {"num_paused_threads", true, true}},
                   {}};
  const auto hosts = HostsOf(answers.nodes);
  for (const proto::WorkerRow& row : answers.rows.workers()) {
    const uint32_t node = ProcessId::Unpack(row.process()).node;
    table.rows.push_back({WorkerId(row.process()), Value::Flag(true), Value::Text("WORKER"),
                          Value{}, Value::Text(NodeIdText(node)),
                          Value::Text(Look(hosts, node, std::string())),
                          Value::Number(row.os_pid()), Value{}, Value{}, Value{}, Value{}, Value{},
                          Value{}, Value{}});
  }
  return table;
}

StateTable Tasks(const Answers& answers) {
  StateTable table{{{"task_id"},
                    {"attempt_number"},
                    {"name"},
                    {"state"},
                    {"job_id"},
                    {"actor_id"},
                    {"type"},
                    {"func_or_class_name"},
                    {"parent_task_id"},
                    {"node_id"},
                    {"worker_id"},
                    {"worker_pid"},
                    {"error_type"},
                    {"language", true, true},
                    {"required_resources", false, true},
                    {"runtime_env_info", false, true},
                    {"placement_group_id", true, true},
                    {"events", false, true},
                    {"profiling_data", false, true},
                    {"creation_time_ms", false, true},
                    {"start_time_ms", false, true},
                    {"end_time_ms", false, true},
                    {"task_log_info", false, true},
                    {"error_message", false, true},
                    {"is_debugger_paused", true, true},
                    {"call_site", false, true},
                    {"label_selector", false, true},
                    {"fallback_strategy", false, true}},
                   {}};
  const auto pids = PidsOf(answers);
  for (const proto::TaskRow& row : answers.rows.tasks()) {
    std::vector<Value> values = {
        Value::Text(row.task_id()),
        Value::Number(row.attempt()),
        Value::Text(row.name()),
        Value::Text(TaskStateName(row.state())),
        JobId(row.job()),
        Value::TextOrNull(row.actor_id()),
        Value::Text(row.type()),
        Value::Text(row.name()),
        Value::Text(""),
        NodeId(row.worker()),
        WorkerId(row.worker()),
        Pid(row.os_pid() != 0 ? row.os_pid() : Look(pids, row.worker(), int32_t{0})),
        Value::TextOrNull(row.error_type())};
    values.resize(table.columns.size());
    const auto set = [&](std::string_view column, Value value) {
      values[ColumnOf(table, column)] = std::move(value);
    };
    set("creation_time_ms", Milliseconds(row.created_unix_ms()));
    set("start_time_ms", Milliseconds(row.begin_unix_ns() / kMillisecond));
    set("end_time_ms", Milliseconds(row.end_unix_ns() / kMillisecond));
    set("error_message", Value::TextOrNull(row.error()));
    table.rows.push_back(std::move(values));
  }
  return table;
}

StateTable Objects(const Answers& answers) {
  StateTable table{{{"object_id"},
                    {"object_size"},
                    {"task_status"},
                    {"attempt_number"},
                    {"reference_type"},
                    {"call_site"},
                    {"type"},
                    {"pid"},
                    {"ip"}},
                   {}};
  const auto hosts = HostsOf(answers.nodes);
  const auto pids = PidsOf(answers);
  absl::flat_hash_map<uint64_t, bool> drivers;
  for (const proto::JobRow& job : answers.jobs.jobs()) drivers[job.driver()] = true;
  for (const proto::ObjectRow& row : answers.rows.objects()) {
    const char* reference = row.local_refs() > 0  ? "LOCAL_REFERENCE"
                            : row.task_refs() > 0 ? "USED_BY_PENDING_TASK"
                                                  : "UNKNOWN_STATUS";
    table.rows.push_back(
        {Value::Text(row.object_id()), Value::Number(static_cast<int64_t>(row.size_bytes())),
         Value::Text(row.where() == "pending" ? "PENDING_NODE_ASSIGNMENT" : "FINISHED"),
         Value::Number(0), Value::Text(reference), Value::Text("disabled"),
         Value::Text(drivers.contains(row.owner()) ? "DRIVER" : "WORKER"),
         Value::Number(Look(pids, row.owner(), int32_t{0})),
         Value::Text(Look(hosts, ProcessId::Unpack(row.owner()).node, std::string()))});
  }
  return table;
}

StateTable PlacementGroups(const Answers& answers) {
  StateTable table{{{"placement_group_id"},
                    {"name"},
                    {"creator_job_id"},
                    {"state"},
                    {"bundles", false, true},
                    {"is_detached", true, true},
                    {"stats", false, true},
                    {"topology_strategy", false, true},
                    {"topology_assignments", false, true}},
                   {}};
  for (const proto::GroupRow& row : answers.rows.groups()) {
    JsonArray bundles;
    for (int i = 0; i < row.bundles_size(); ++i) {
      const bool placed = i < row.bundle_nodes_size() && row.bundle_nodes(i) != 0;
      bundles.Add(JsonObject()
                      .Add("bundle_id", JsonString(absl::StrCat(row.group_id(), ":", i)))
                      .Add("unit_resources", ResourcesJson(row.bundles(i)))
                      .Add("node_id", placed ? JsonString(NodeIdText(row.bundle_nodes(i))) : "null")
                      .Done());
    }
    // One that no node could hold now waits, as others do.
    const std::string_view state =
        row.state() == "INFEASIBLE" ? "PENDING" : std::string_view(row.state());
    table.rows.push_back({Value::Text(row.group_id()), Value::Text(row.name()), Value::Text(""),
                          Value::Text(state), Value::Json(bundles.Done()),
                          Value::Flag(row.detached()), Value{}, Value{}, Value{}});
  }
  return table;
}

StateTable Jobs(const Answers& answers) {
  StateTable table{{{"type"},
                    {"job_id"},
                    {"submission_id"},
                    {"driver_info", false},
                    {"status"},
                    {"entrypoint", false},
                    {"message", false},
                    {"error_type", false},
                    {"start_time", false, true},
                    {"end_time", false, true},
                    {"metadata", false, true},
                    {"runtime_env", false, true},
                    {"driver_agent_http_address", false, true},
                    {"driver_node_id", false, true},
                    {"driver_exit_code", false, true}},
                   {}};
  const auto hosts = HostsOf(answers.nodes);
  for (const proto::JobRow& row : answers.rows.jobs()) {
    const uint32_t node = ProcessId::Unpack(row.driver()).node;
    const Value id = JobId(row.job());
    const std::string driver =
        JsonObject()
            .Add("id", id.json)
            .Add("node_ip_address", JsonString(Look(hosts, node, std::string())))
            .Add("pid", JsonString(std::to_string(row.os_pid())))
            .Done();
    table.rows.push_back({Value::Text("DRIVER"), id, Value{}, Value::Json(driver),
                          Value::Text(JobStateName(row.state())), Value::Text(row.entrypoint()),
                          Value{}, Value{}, Value::Number(row.start_time_unix_s() * 1000), Value{},
                          Value::Json("{}"), Value::Json("{}"), Value{},
                          Value::Text(NodeIdText(node)), Value{}});
  }
  return table;
}

constexpr std::array<StateKind, 8> kKinds = {
    {{"actors", proto::StateQuery::ACTORS, false, true, false, Actors},
     {"cluster_events", proto::StateQuery::EVENTS, false, false, false, EventTable},
     {"jobs", proto::StateQuery::JOBS, true, false, false, Jobs},
     {"nodes", proto::StateQuery::NODES, false, false, false, Nodes},
     {"objects", proto::StateQuery::OBJECTS, true, true, true, Objects},
     {"placement_groups", proto::StateQuery::GROUPS, false, false, false, PlacementGroups},
     {"tasks", proto::StateQuery::TASKS, false, true, false, Tasks},
     {"workers", proto::StateQuery::WORKERS, true, false, false, Workers}}};

}  // namespace

const StateKind* FindStateKind(std::string_view name) {
  for (const StateKind& kind : kKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::vector<std::string> StateKindNames() {
  std::vector<std::string> names;
  for (const StateKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string HostOfAddress(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.empty() ? "127.0.0.1" : host;
}

std::string NodeIdText(uint32_t node) {
  return absl::StrCat(std::string(48, '0'), absl::Hex(node, absl::kZeroPad8));
}

absl::StatusOr<uint32_t> NodeOfId(std::string_view text) {
  uint32_t node = 0;
  if (text.empty() || text.size() > 56 ||
      !absl::SimpleHexAtoi(std::string(text.substr(text.size() > 8 ? text.size() - 8 : 0)),
                           &node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("node_id=", std::string(text.substr(0, 80)), ": want hexadecimal digits"));
  }
  return node;
}

}  // namespace sheaf::dashboard
