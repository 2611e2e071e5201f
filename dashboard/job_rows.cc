// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_rows.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "dashboard/state_rows.h"
#include "http/json.h"

namespace sheaf::dashboard {
namespace {

namespace json = boost::json;
using S = proto::Submission;

constexpr char kNull[] = "null";
constexpr size_t kMaxLogCharacters = 20'000;

std::string SubmissionOf(const proto::JobRow& row) {
  if (row.metadata().empty()) return "";
  const absl::StatusOr<json::value> metadata = http::ParseJson(row.metadata());
  if (!metadata.ok() || !metadata->is_object()) return "";
  const json::value* const id = metadata->get_object().if_contains("job_submission_id");
  if (id == nullptr || !id->is_string()) return "";
  return std::string(id->get_string().data(), id->get_string().size());
}

const char* StatusOf(S::State state) {
  switch (state) {
    case S::RUNNING:
      return "RUNNING";
    case S::SUCCEEDED:
      return "SUCCEEDED";
    case S::FAILED:
      return "FAILED";
    case S::STOPPED:
      return "STOPPED";
    default:
      return "PENDING";
  }
}

const char* ErrorTypeOf(S::Failure failure) {
  switch (failure) {
    case S::SETUP:
      return "RUNTIME_ENV_SETUP_FAILURE";
    case S::NOT_STARTED_IN_TIME:
      return "JOB_SUPERVISOR_ACTOR_START_TIMEOUT";
    case S::NOT_STARTED:
      return "JOB_ENTRYPOINT_COMMAND_START_ERROR";
    case S::NODE_DIED:
      return "JOB_SUPERVISOR_ACTOR_DIED";
    case S::COMMAND:
      return "JOB_ENTRYPOINT_COMMAND_ERROR";
    default:
      return nullptr;
  }
}

// As Python counts it: signals below 0.
std::optional<int> ExitCode(const S& submission) {
  const proto::Death& death = submission.death();
  if (submission.started_unix_ms() == 0) return std::nullopt;
  if (death.cause() == proto::Death::EXITED) return death.code();
  if (death.cause() == proto::Death::SIGNALLED || death.cause() == proto::Death::OUT_OF_MEMORY)
    return -death.code();
  return std::nullopt;
}

std::string LastLog(const proto::Death& death) {
  std::string log = absl::StrJoin(death.last_lines(), "\n");
  if (log.size() > kMaxLogCharacters) log.erase(0, log.size() - kMaxLogCharacters);
  return log;
}

std::string FailureWords(const S& submission) {
  const std::string log = LastLog(submission.death());
  switch (submission.failure()) {
    case S::SETUP:
      return absl::StrCat("runtime_env setup failed: ", log);
    case S::NOT_STARTED_IN_TIME:
      return absl::StrCat("Job supervisor actor failed to start within ",
                          submission.start_timeout_ns() / 1'000'000'000,
                          " seconds. This timeout can be configured by setting the environment "
                          "variable RAY_JOB_START_TIMEOUT_SECONDS.");
    case S::COMMAND: {
      std::string words = "Job entrypoint command failed";
      if (const std::optional<int> code = ExitCode(submission))
        absl::StrAppend(&words, " with exit code ", *code);
      if (submission.death().cause() != proto::Death::EXITED)
        absl::StrAppend(&words, " (", submission.death().message(), ")");
      return absl::StrCat(words, ", last available logs (truncated to 20,000 chars):\n", log);
    }
    default:
      return absl::StrCat("Job failed: ", submission.words());
  }
}

std::string MessageOf(const S& submission) {
  switch (submission.state()) {
    case S::RUNNING:
      return "Job is currently running.";
    case S::SUCCEEDED:
      return "Job finished successfully.";
    case S::STOPPED:
      return "Job was intentionally stopped.";
    case S::FAILED:
      return FailureWords(submission);
    default:
      return submission.words().empty()
                 ? "Job has not started yet."
                 : absl::StrCat("Job has not started yet. It waits for: ", submission.words());
  }
}

// Others than this server may have written it.
std::string ObjectJson(const std::string& text) {
  if (text.empty()) return "{}";
  const absl::StatusOr<json::value> parsed = http::ParseJson(text);
  return parsed.ok() && parsed->is_object() ? text : "{}";
}

std::string RuntimeEnvJson(const std::string& text, bool redacts) {
  if (text.empty()) return "{}";
  absl::StatusOr<json::value> parsed = http::ParseJson(text);
  if (!parsed.ok() || !parsed->is_object()) return "{}";
  if (!redacts) return text;
  if (json::value* const variables = parsed->get_object().if_contains("env_vars");
      variables != nullptr && variables->is_object()) {
    for (auto& [name, value] : variables->get_object()) value = "<redacted>";
  }
  return json::serialize(*parsed);
}

const NodePlace& PlaceOf(NodeNumber node, const NodePlaces& nodes) {
  static const NodePlace nowhere;
  const auto found = nodes.find(node);
  return found == nodes.end() ? nowhere : found->second;
}

std::string AgentJson(NodeNumber node, const NodePlaces& nodes) {
  const std::string& address = PlaceOf(node, nodes).http_address;
  return address.empty() ? kNull : JsonString(address);
}

std::string DriverInfoJson(const proto::JobRow& row, const NodePlaces& nodes) {
  const NodeNumber node = ProcessId::Unpack(row.driver()).node;
  return JsonObject()
      .Add("id", JsonString(JobId(row.job())))
      .Add("node_ip_address", JsonString(PlaceOf(node, nodes).ip))
      .Add("pid", JsonString(absl::StrCat(row.os_pid())))
      .Done();
}

std::string Milliseconds(int64_t time) { return time == 0 ? kNull : JsonNumber(time); }

}  // namespace

std::string JobId(uint32_t job) { return absl::StrCat(absl::Hex(job, absl::kZeroPad8)); }

Drivers SortDrivers(const proto::StateAnswer& jobs) {
  Drivers drivers;
  for (const proto::JobRow& row : jobs.jobs()) {  // By number: the last one counts.
    const std::string submission = SubmissionOf(row);
    if (submission.empty()) {
      drivers.others[JobId(row.job())] = row;
    } else {
      drivers.of_submission[submission] = row;
      drivers.submission_of[JobId(row.job())] = submission;
    }
  }
  return drivers;
}

NodePlaces PlacesOf(const proto::StateAnswer& nodes) {
  NodePlaces places;
  for (const proto::NodeRow& row : nodes.nodes()) {
    const std::string& metrics = row.metrics_url();  // "http://10.0.0.1:9400/metrics"
    places[row.node()] = {HostOfAddress(row.address()), metrics.substr(0, metrics.rfind('/'))};
  }
  return places;
}

std::string SubmissionJson(const S& submission, const proto::JobRow* driver,
                           const NodePlaces& nodes, bool redacts) {
  const proto::Entrypoint& wanted = submission.entrypoint();
  const char* const error_type =
      submission.state() == S::FAILED ? ErrorTypeOf(submission.failure()) : nullptr;
  const std::optional<int> code = ExitCode(submission);
  return JsonObject()
      .Add("type", JsonString("SUBMISSION"))
      .Add("job_id", driver == nullptr ? kNull : JsonString(JobId(driver->job())))
      .Add("submission_id", JsonString(wanted.submission_id()))
      .Add("driver_info", driver == nullptr ? kNull : DriverInfoJson(*driver, nodes))
      .Add("status", JsonString(StatusOf(submission.state())))
      .Add("entrypoint", JsonString(wanted.command()))
      .Add("message", JsonString(MessageOf(submission)))
      .Add("error_type", error_type == nullptr ? kNull : JsonString(error_type))
      .Add("start_time", Milliseconds(submission.submitted_unix_ms()))
      .Add("end_time", Milliseconds(submission.ended_unix_ms()))
      .Add("metadata", ObjectJson(wanted.metadata()))
      .Add("runtime_env", RuntimeEnvJson(wanted.runtime_env(), redacts))
      .Add("driver_agent_http_address", AgentJson(submission.node(), nodes))
      .Add("driver_node_id",
           submission.node() == 0 ? kNull : JsonString(NodeIdText(submission.node())))
      .Add("driver_exit_code", code ? JsonNumber(int64_t{*code}) : kNull)
      .Done();
}

std::string DriverJson(const proto::JobRow& row, const NodePlaces& nodes) {
  const NodeNumber node = ProcessId::Unpack(row.driver()).node;
  const bool runs = row.state() == "RUNNING";
  const char* const status = runs ? "RUNNING" : row.state() == "FINISHED" ? "SUCCEEDED" : "FAILED";
  return JsonObject()
      .Add("type", JsonString("DRIVER"))
      .Add("job_id", JsonString(JobId(row.job())))
      .Add("submission_id", kNull)
      .Add("driver_info", DriverInfoJson(row, nodes))
      .Add("status", JsonString(status))
      .Add("entrypoint", JsonString(row.entrypoint()))
      .Add("message", kNull)
      .Add("error_type", kNull)
      .Add("start_time", Milliseconds(row.start_time_unix_s() * 1000))
      .Add("end_time", Milliseconds(row.end_time_unix_s() * 1000))
      .Add("metadata", ObjectJson(row.metadata()))
      .Add("runtime_env", "{}")
      .Add("driver_agent_http_address", AgentJson(node, nodes))
      .Add("driver_node_id", JsonString(NodeIdText(node)))
      .Add("driver_exit_code", kNull)
      .Done();
}

}  // namespace sheaf::dashboard
