// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_rows.h"

#include <boost/json/value.hpp>
#include <catch2/catch.hpp>

#include "http/json.h"

namespace sheaf::dashboard {
namespace job_rows_test {

using S = proto::Submission;

boost::json::object Parsed(const std::string& text) {
  const auto value = http::ParseJson(text);
  INFO(text);
  REQUIRE(value.ok());
  return value->as_object();
}
std::string Text(const boost::json::object& row, const char* name) {
  const boost::json::value& value = row.at(name);
  return value.is_string() ? std::string(value.as_string().c_str()) : "null";
}

S Submission(S::State state) {
  S submission;
  submission.mutable_entrypoint()->set_submission_id("one");
  submission.mutable_entrypoint()->set_command("python a.py");
  submission.set_state(state);
  submission.set_submitted_unix_ms(1000);
  return submission;
}

proto::JobRow Driver(uint32_t job, const std::string& metadata) {
  proto::JobRow row;
  row.set_job(job);
  row.set_state("RUNNING");
  row.set_os_pid(77);
  row.set_metadata(metadata);
  return row;
}

SCENARIO("a submission has all fields of a job, in each of its states") {
  for (int state = 0; S::State_IsValid(state); ++state) {
    const auto row =
        Parsed(SubmissionJson(Submission(static_cast<S::State>(state)), nullptr, {}, false));
    for (const char* name :
         {"type", "job_id", "submission_id", "driver_info", "status", "entrypoint", "message",
          "error_type", "start_time", "end_time", "metadata", "runtime_env",
          "driver_agent_http_address", "driver_node_id", "driver_exit_code"}) {
      CAPTURE(name);
      CHECK(row.contains(name));
    }
  }
  CHECK(Text(Parsed(SubmissionJson(Submission(S::STARTING), nullptr, {}, false)), "status") ==
        "PENDING");
}

SCENARIO("a failed submission says why") {
  S submission = Submission(S::FAILED);
  submission.set_failure(S::COMMAND);
  submission.set_started_unix_ms(2000);
  submission.mutable_death()->add_last_lines("Traceback");
  WHEN("its command exited") {
    submission.mutable_death()->set_cause(proto::Death::EXITED);
    submission.mutable_death()->set_code(3);
    const auto row = Parsed(SubmissionJson(submission, nullptr, {}, false));
    CHECK(row.at("driver_exit_code").as_int64() == 3);
    CHECK(Text(row, "error_type") == "JOB_ENTRYPOINT_COMMAND_ERROR");
    CHECK(Text(row, "message") ==
          "Job entrypoint command failed with exit code 3, last available logs (truncated to "
          "20,000 chars):\nTraceback");
  }
  WHEN("a signal ended it") {
    submission.mutable_death()->set_cause(proto::Death::SIGNALLED);
    submission.mutable_death()->set_code(9);
    CHECK(
        Parsed(SubmissionJson(submission, nullptr, {}, false)).at("driver_exit_code").as_int64() ==
        -9);
  }
  WHEN("it did not start in time") {
    submission.set_failure(S::NOT_STARTED_IN_TIME);
    submission.set_start_timeout_ns(900'000'000'000);
    CHECK(Text(Parsed(SubmissionJson(submission, nullptr, {}, false)), "message").substr(0, 61) ==
          "Job supervisor actor failed to start within 900 seconds. This");
  }
}

SCENARIO("values of variables are left out for browsers") {
  S submission = Submission(S::RUNNING);
  submission.mutable_entrypoint()->set_runtime_env(R"({"env_vars":{"SECRET":"abc"},"pip":["a"]})");
  const std::string shown = SubmissionJson(submission, nullptr, {}, true);
  CHECK(shown.find("abc") == std::string::npos);
  CHECK(shown.find(R"({"SECRET":"<redacted>"})") != std::string::npos);
  CHECK(SubmissionJson(submission, nullptr, {}, false).find("abc") != std::string::npos);
}

SCENARIO("drivers belong to the submission that their metadata name") {
  proto::StateAnswer jobs;
  *jobs.add_jobs() = Driver(1, "");
  *jobs.add_jobs() = Driver(2, R"({"job_submission_id":"one"})");
  *jobs.add_jobs() = Driver(3, R"({"job_submission_id":"one"})");
  *jobs.add_jobs() = Driver(4, "no JSON");
  const Drivers drivers = SortDrivers(jobs);
  CHECK(drivers.of_submission.at("one").job() == 3);
  CHECK(drivers.submission_of.at("00000002") == "one");
  CHECK(drivers.others.size() == 2);
  const auto row =
      Parsed(SubmissionJson(Submission(S::RUNNING), &drivers.of_submission.at("one"), {}, false));
  CHECK(Text(row, "job_id") == "00000003");
  CHECK(Text(row.at("driver_info").as_object(), "pid") == "77");
  CHECK(Text(Parsed(DriverJson(Driver(1, ""), {})), "type") == "DRIVER");
  CHECK(Parsed(DriverJson(Driver(4, "no JSON"), {})).at("metadata").as_object().empty());
}

}  // namespace job_rows_test
}  // namespace sheaf::dashboard
