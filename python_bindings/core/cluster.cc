// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/cluster.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python_bindings/core/asking.h"
#include "python_bindings/core/execution.h"
#include "python_bindings/core/options.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"
#include "telemetry/call_trace.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

proto::StateAnswer AskState(proto::StateQuery query) {
  proto::StateAnswer answer =
      Ask([&](Runtime& runtime) { return runtime.Query(std::move(query), Soon()); });
  if (!answer.error().empty()) Throw(absl::InternalError(answer.error()));
  return answer;
}

// (key, value) each, which rows must have: those that nodes know (telemetry/row_filters.h).
using Wanted = std::vector<std::pair<std::string, std::string>>;

proto::StateAnswer AskState(proto::StateQuery::What what, const std::string& id,
                            const Wanted& wanted = {}) {
  proto::StateQuery query;
  query.set_what(what);
  query.set_id(id);
  for (const auto& [key, value] : wanted) {
    proto::StateFilter& filter = *query.add_filters();
    filter.set_key(key);
    filter.set_value(value);
  }
  return AskState(std::move(query));
}

std::string WhatIsMissing(const proto::StateAnswer& answer) {
  if (answer.late_nodes_size() == 0)
    return "this listing is not complete: it has as many rows as one answer holds, or some process "
           "did not answer in time";
  std::string nodes;
  for (const uint32_t node : answer.late_nodes())
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(node);
  return "this listing is not complete: it lacks the rows of nodes " + nodes +
         ", which did not answer in time";
}

proto::StateAnswer Query(proto::StateQuery::What what, const std::string& id = {},
                         const Wanted& wanted = {}) {
  proto::StateAnswer answer = AskState(what, id, wanted);
  if (answer.truncated() &&
      PyErr_WarnEx(PyExc_UserWarning, WhatIsMissing(answer).c_str(), 2) != 0) {
    throw nb::python_error();
  }
  return answer;
}

nb::list Nodes() {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::NODES);
  for (const proto::NodeRow& row : answer.nodes()) {
    nb::dict out;
    out["node"] = row.node();
    out["state"] = row.state();
    out["host_name"] = row.host_name();
    out["address"] = row.address();
    out["metrics_url"] = row.metrics_url();
    out["is_head"] = row.is_head();
    out["total"] = AmountsOf(row.total());
    out["available"] = AmountsOf(row.available());
    out["labels"] = std::map<std::string, std::string>(row.labels().begin(), row.labels().end());
    rows.append(out);
  }
  return rows;
}

nb::list Actors(const Wanted& wanted) {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::ACTORS, {}, wanted);
  for (const proto::ActorRow& row : answer.actors()) {
    nb::dict out;
    out["actor_id"] = row.actor_id();
    out["class_name"] = row.class_name();
    out["name"] = row.name();
    out["namespace"] = row.name_space();
    out["state"] = row.state();
    out["pid"] = row.os_pid();
    out["process"] = row.process() == 0 ? "" : ProcessId::Unpack(row.process()).ToString();
    out["restarts"] = row.restarts();
    out["job"] = row.job();
    out["death"] = row.death();
    out["detached"] = row.detached();
    rows.append(out);
  }
  return rows;
}

nb::list GroupRows(const proto::StateAnswer& answer) {
  nb::list rows;
  for (const proto::GroupRow& row : answer.groups()) {
    nb::dict out;
    nb::list bundles;
    for (const proto::Resources& bundle : row.bundles())
      bundles.append(nb::cast(AmountsOf(bundle)));
    out["group_id"] = row.group_id();
    out["name"] = row.name();
    out["state"] = row.state();
    out["placement"] = row.placement();
    out["bundles"] = bundles;
    out["nodes"] = std::vector<uint32_t>(row.bundle_nodes().begin(), row.bundle_nodes().end());
    rows.append(out);
  }
  return rows;
}

nb::list Groups(const Wanted& wanted) {
  return GroupRows(Query(proto::StateQuery::GROUPS, {}, wanted));
}

// (rows, whether they are all that there are).
nb::tuple GroupsIfAll() {
  const proto::StateAnswer answer = AskState(proto::StateQuery::GROUPS, {});
  return nb::make_tuple(GroupRows(answer), !answer.truncated());
}

// `filters`: (key, whether it must not be so, value) each, as in StateFilter. The rows, what is missing
// in words ("": nothing), and how many events of ended calls no node has read.
nb::tuple Tasks(bool ended, const std::vector<std::tuple<std::string, bool, std::string>>& filters,
                const std::string& id, uint32_t limit, int64_t ended_before_ns) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::TASKS);
  query.set_ended(ended);
  query.set_id(id);
  query.set_limit(limit);
  query.set_ended_before_ns(ended_before_ns);
  for (const auto& [key, not_equal, value] : filters) {
    proto::StateFilter& filter = *query.add_filters();
    filter.set_key(key);
    filter.set_not_equal(not_equal);
    filter.set_value(value);
  }
  nb::list rows;
  const proto::StateAnswer answer = AskState(std::move(query));
  for (const proto::TaskRow& row : answer.tasks()) {
    nb::dict out;
    out["task_id"] = row.task_id();
    out["name"] = row.name();
    out["state"] = row.state();
    out["owner"] = ProcessId::Unpack(row.owner()).ToString();
    out["worker"] = row.worker() == 0 ? "" : ProcessId::Unpack(row.worker()).ToString();
    out["attempt"] = row.attempt();
    out["job"] = row.job();
    out["actor_id"] = row.actor_id();
    out["words"] = row.words();
    out["type"] = row.type();
    out["created_ms"] = row.created_unix_ms();
    out["begin_ns"] = row.begin_unix_ns();
    out["end_ns"] = row.end_unix_ns();
    out["parent_sequence"] = row.parent_sequence();
    out["weight"] = std::max(1u, row.weight());
    out["error_type"] = row.error_type();
    out["error"] = nb::bytes(row.error().data(), row.error().size());
    out["thread"] = row.thread();
    out["pid"] = row.os_pid();
    rows.append(out);
  }
  return nb::make_tuple(rows, answer.truncated() ? WhatIsMissing(answer) : std::string(),
                        answer.events_lost());
}

// (the trace, how many calls nobody saw).
nb::tuple Timeline(const std::string& format) {
  const absl::StatusOr<telemetry::TraceFormat> parsed = telemetry::ParseTraceFormat(format);
  if (!parsed.ok()) Throw(parsed.status());
  std::string text;
  const telemetry::CallTrace trace = Ask([&](Runtime& runtime) {
    absl::StatusOr<telemetry::CallTrace> calls = telemetry::CollectCalls(
        [&](const proto::StateQuery& query) { return runtime.Query(query, Soon()); },
        telemetry::MostCallsOf(*parsed));
    if (calls.ok()) text = telemetry::WriteTrace(*calls, *parsed);
    return calls;
  });
  return nb::make_tuple(nb::bytes(text.data(), text.size()), trace.lost);
}

nb::list Functions() {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::FUNCTIONS);
  for (const proto::FunctionRow& row : answer.functions()) {
    nb::dict out;
    out["name"] = nb::bytes(row.name().data(), row.name().size());
    out["type"] = row.type();
    out["job"] = row.job();
    out["finished"] = row.finished();
    out["failed"] = row.failed();
    out["cancelled"] = row.cancelled();
    out["timed"] = row.timed();
    out["waiting_for_arguments"] = row.waiting_for_arguments();
    out["waiting_for_place"] = row.waiting_for_place();
    out["pushed"] = row.pushed();
    out["running"] = row.running();
    out["run_ns"] = row.run_ns();
    out["longest_ns"] = row.longest_ns();
    out["run_time"] = std::vector<uint64_t>(row.run_time().begin(), row.run_time().end());
    rows.append(out);
  }
  return rows;
}

nb::list Objects(const Wanted& wanted) {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::OBJECTS, {}, wanted);
  for (const proto::ObjectRow& row : answer.objects()) {
    nb::dict out;
    out["object_id"] = row.object_id();
    out["size"] = row.size_bytes();
    out["where"] = row.where();
    out["owner"] = ProcessId::Unpack(row.owner()).ToString();
    out["local_refs"] = row.local_refs();
    out["task_refs"] = row.task_refs();
    out["borrowing_nodes"] = row.borrowing_nodes();
    out["age_s"] = row.age_ms() / 1000;
    out["may_leak"] = row.may_leak();
    rows.append(out);
  }
  return rows;
}

nb::list Jobs() {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::JOBS);
  for (const proto::JobRow& row : answer.jobs()) {
    nb::dict out;
    out["job"] = row.job();
    out["pid"] = row.os_pid();
    out["namespace"] = row.name_space();
    out["entrypoint"] = row.entrypoint();
    out["state"] = row.state();
    out["start_time"] = row.start_time_unix_s();
    rows.append(out);
  }
  return rows;
}

nb::list Events() {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::EVENTS);
  for (const proto::EventRow& row : answer.events()) {
    nb::dict out;
    out["number"] = row.number();
    out["time_ms"] = row.unix_ms();
    out["severity"] = proto::EventRow::Severity_Name(row.severity());
    out["kind"] = proto::EventRow::Kind_Name(row.kind());
    out["message"] = row.message();
    out["node"] = row.node();
    out["job"] = row.job();
    out["id"] = row.id();
    rows.append(out);
  }
  return rows;
}

nb::list Workers() {
  nb::list rows;
  const proto::StateAnswer answer = Query(proto::StateQuery::WORKERS);
  for (const proto::WorkerRow& row : answer.workers()) {
    nb::dict out;
    out["worker"] = ProcessId::Unpack(row.process()).ToString();
    out["node"] = ProcessId::Unpack(row.process()).node;
    out["pid"] = row.os_pid();
    out["state"] = row.state();
    out["job"] = row.job();
    out["running"] = row.running();
    rows.append(out);
  }
  return rows;
}

// (drivers and workers that there are, as "NODE.NUMBER", whether they are all that there are, when
// drivers ended that are no more: seconds since 1970, 0: not known).
nb::tuple ProcessesIfAll() {
  const proto::StateAnswer jobs = AskState(proto::StateQuery::JOBS, {});
  const proto::StateAnswer workers = AskState(proto::StateQuery::WORKERS, {});
  std::vector<std::string> names;
  std::map<std::string, std::pair<int64_t, bool>> ended;  // When, and whether it died.
  for (const proto::JobRow& row : jobs.jobs()) {
    const std::string name = ProcessId::Unpack(row.driver()).ToString();
    if (row.state() == "RUNNING") {
      names.push_back(name);
    } else {
      ended[name] = {row.end_time_unix_s(), row.state() == "FAILED"};
    }
  }
  for (const proto::WorkerRow& row : workers.workers())
    names.push_back(ProcessId::Unpack(row.process()).ToString());
  return nb::make_tuple(names, !jobs.truncated() && !workers.truncated(), ended);
}

std::string CreateGroup(const std::vector<Amounts>& bundles, int placement, const std::string& name,
                        bool detached, const nb::list& selectors) {
  proto::GroupRequest request;
  request.set_action(proto::GroupRequest::CREATE);
  request.set_placement(static_cast<proto::GroupRequest::Placement>(placement));
  request.set_name(name);
  request.set_detached(detached);
  for (const Amounts& bundle : bundles) FillAmounts(bundle, request.add_bundles());
  for (nb::handle selector : selectors) FillSelector(selector, request.add_selectors());
  return Ask([&](Runtime& runtime) { return runtime.CreateGroup(std::move(request)); }).ToHex();
}

PlacementGroupId GroupNamed(const std::string& hex) {
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromHex(hex);
  if (!id.ok()) throw nb::value_error(("'" + hex + "' names no placement group").c_str());
  return *id;
}

void RemoveGroup(const std::string& group) {
  const PlacementGroupId id = GroupNamed(group);
  Runtime& runtime = Required();
  absl::Status status;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    status = runtime.RemoveGroup(id);
  }
  if (!status.ok()) Throw(status);
}

// (state, nodes, words), or None when the time is up.
std::optional<nb::tuple> WaitGroup(const std::string& group, nb::handle timeout) {
  const PlacementGroupId id = GroupNamed(group);
  Nanos deadline = 0;
  if (!DeadlineFrom(timeout.ptr(), &deadline)) throw nb::python_error();
  Runtime& runtime = Required();
  absl::StatusOr<proto::GroupState> state;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    state = runtime.WaitGroup(id, deadline);
  }
  if (absl::IsDeadlineExceeded(state.status())) return std::nullopt;
  if (!state.ok()) Throw(state.status());
  return nb::make_tuple(
      proto::GroupState::State_Name(state->state()),
      std::vector<uint32_t>(state->bundle_nodes().begin(), state->bundle_nodes().end()),
      state->message());
}

// (reference, extra of its class, name of its class, key of its class), or None: there is no such
// actor.
std::optional<nb::tuple> GetActor(const std::string& name, const std::string& name_space) {
  Runtime& runtime = Required();
  proto::TaskTemplate creation;
  absl::StatusOr<ObjectHandle> handle;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    handle = runtime.GetActor(name, name_space, &creation);
  }
  if (absl::IsNotFound(handle.status())) return std::nullopt;
  if (!handle.ok()) Throw(handle.status());
  nb::object reference = nb::steal(NewReference(*std::move(handle)));
  return nb::make_tuple(reference, nb::bytes(creation.extra().data(), creation.extra().size()),
                        creation.name(), creation.function());
}

nb::object OwnActor() {
  absl::StatusOr<ObjectHandle> handle = Required().OwnActor();
  if (!handle.ok()) Throw(handle.status());
  return nb::steal(NewReference(*std::move(handle)));
}

bool KeyPut(const std::string& space, const std::string& key, const nb::bytes& value,
            bool overwrite, bool of_job) {
  const std::string_view bytes(value.c_str(), value.size());
  const auto life = of_job ? Runtime::KeyLife::kOfJob : Runtime::KeyLife::kUntilDeleted;
  return Ask(
      [&](Runtime& runtime) { return runtime.KeyPut(space, key, bytes, overwrite, life, Soon()); });
}
bool KeyOwn(const std::string& space, const std::vector<std::string>& keys) {
  return Ask([&](Runtime& runtime) { return runtime.KeyOwn(space, keys, Soon()); });
}
std::optional<nb::bytes> KeyGet(const std::string& space, const std::string& key) {
  const std::optional<std::string> value =
      Ask([&](Runtime& runtime) { return runtime.KeyGet(space, key, Soon()); });
  if (!value) return std::nullopt;
  return nb::bytes(value->data(), value->size());
}
bool KeyDelete(const std::string& space, const std::string& key) {
  return Ask([&](Runtime& runtime) { return runtime.KeyDelete(space, key, Soon()); });
}
std::vector<std::string> KeyList(const std::string& space, const std::string& prefix) {
  return Ask([&](Runtime& runtime) { return runtime.KeyList(space, prefix, Soon()); });
}

// This process, and the call that runs here.
nb::dict Context() {
  Runtime& runtime = Required();
  nb::dict out = nb::steal<nb::dict>(DescribeCurrentExecution());
  const proto::LeaseSpec lease = runtime.current_lease();
  out["node"] = runtime.self().node;
  out["process"] = runtime.self().process;
  out["job"] = runtime.job();
  out["namespace"] = runtime.name_space();
  out["gpu_ids"] = runtime.gpu_ids();
  out["resources"] = AmountsOf(lease.has_running() ? lease.running() : lease.resources());
  const proto::Strategy& strategy = ProcessStrategy();
  const absl::StatusOr<PlacementGroupId> id = PlacementGroupId::FromBinary(strategy.group_id());
  out["group"] = strategy.group_id().empty() || !id.ok() ? "" : id->ToHex();
  out["captures"] = strategy.capture_children();
  return out;
}

}  // namespace

void BindCluster(nb::module_& module) {
  module.def("nodes", &Nodes);
  module.def("actors", &Actors, nb::arg("wanted") = Wanted());
  module.def("groups", &Groups, nb::arg("wanted") = Wanted());
  module.def("groups_if_all", &GroupsIfAll);
  module.def("timeline", &Timeline, nb::arg("format"));
  module.def("tasks", &Tasks, nb::arg("ended"), nb::arg("filters"), nb::arg("id"), nb::arg("limit"),
             nb::arg("ended_before_ns"));
  module.def("functions", &Functions);
  module.def("objects", &Objects, nb::arg("wanted") = Wanted());
  module.def("jobs", &Jobs);
  module.def("events", &Events);
  module.def("workers", &Workers);
  module.def("processes_if_all", &ProcessesIfAll);
  module.def(
      "why", [](const std::string& id) { return Query(proto::StateQuery::WHY, id).words(); },
      nb::arg("id"), "Why the task, actor or placement group with this id waits, in words.");
  module.def("metrics_url", [] { return Query(proto::StateQuery::STATUS).metrics_url(); });
  module.def("create_group", &CreateGroup);
  module.def("remove_group", &RemoveGroup);
  module.def("wait_group", &WaitGroup);
  module.def("get_actor", &GetActor);
  module.def("own_actor", &OwnActor, "In an actor: the reference that a handle of it holds.");
  module.def(
      "key_put", &KeyPut, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg("of_job") = false,
      "of_job: it goes with the last of the jobs that put or own it, and their detached actors.");
  module.def(
      "key_own", &KeyOwn,
      "Lets this job own keys beside those that do; False: one is missing, nothing changed.");
  module.def("key_get", &KeyGet);
  module.def("key_delete", &KeyDelete);
  module.def("key_list", &KeyList);
  module.def("context", &Context);
  module.def("cancel_requested", &IsCurrentExecutionCancelled,
             "Whether the call that runs here, on this thread or as a coroutine, was cancelled.");
  module.def(
      "take_interrupt",
      [] {
        const Execution* const call = CurrentExecution();
        return call != nullptr && call->cancelled() && TakeInterrupt();
      },
      "Main thread: whether SIGINT means its call, and is the first that does.");
}

}  // namespace sheaf::python
