// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_request.h"

#include <catch2/catch.hpp>

namespace sheaf::dashboard {
namespace job_request_test {

std::string ErrorOf(std::string_view body) {
  const auto parsed = ParseJobRequest(body, "key");
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SCENARIO("a request to submit a job is read as Ray's clients write it") {
  const auto parsed = ParseJobRequest(
      R"json({"entrypoint": "python a.py", "submission_id": "one", "job_id": "old",
          "metadata": {"owner": "me"}, "entrypoint_num_cpus": 0.5, "entrypoint_num_gpus": 1,
          "entrypoint_memory": 1000, "entrypoint_resources": {"apple": 2},
          "entrypoint_label_selector": {"zone": "!in(a, b)", "disk": "ssd"},
          "runtime_env": {"env_vars": {"A": "1=2", "RAY_JOB_START_TIMEOUT_SECONDS": "7"},
                          "_ray_commit": "abc"},
          "a_field_that_is_null": null})json",
      "key");
  REQUIRE(parsed.ok());
  const proto::Entrypoint& wanted = parsed->entrypoint();
  CHECK(wanted.command() == "python a.py");
  CHECK(wanted.submission_id() == "one");
  CHECK(parsed->idempotency_key() == "key");
  CHECK(parsed->start_timeout_ns() == 7'000'000'000);
  CHECK(wanted.metadata() == R"({"owner":"me"})");
  CHECK_FALSE(wanted.prepares());
  REQUIRE(wanted.environ_size() == 2);
  CHECK(wanted.environ(0) == "A=1=2");
  CHECK(wanted.resources().amounts().at("CPU") == 5'000);
  CHECK(wanted.resources().amounts().at("GPU") == 10'000);
  CHECK(wanted.resources().amounts().at("memory") == 10'000'000);
  CHECK(wanted.resources().amounts().at("apple") == 20'000);
  REQUIRE(wanted.labels().terms_size() == 2);
  CHECK(wanted.labels().terms(0).negated());
  CHECK(wanted.labels().terms(0).values_size() == 2);
  CHECK(wanted.labels().terms(0).values(1) == "b");
  CHECK(wanted.labels().terms(1).values(0) == "ssd");
}

SCENARIO("what a runtime environment wants besides variables is prepared") {
  for (const char* field : {R"("working_dir": "gcs://a.zip")", R"("pip": ["a"])",
                            R"("py_modules": ["gcs://a.zip"])", R"("conda": "x")"}) {
    CAPTURE(field);
    const auto parsed = ParseJobRequest(
        R"({"entrypoint": "x", "runtime_env": {)" + std::string(field) + "}}", "key");
    REQUIRE(parsed.ok());
    CHECK(parsed->entrypoint().prepares());
  }
}

SCENARIO("a request without an id is named after its key") {
  const auto id = [](const std::string& key) {
    return ParseJobRequest(R"({"entrypoint": "x"})", key)->entrypoint().submission_id();
  };
  CHECK(id("a").size() == 26);
  CHECK(id("a").substr(0, 10) == "raysubmit_");
  CHECK(id("a") == id("a"));
  CHECK(id("a") != id("b"));
}

SCENARIO("a wrong request is refused with the name of the field") {
  CHECK(Contains(ErrorOf("{"), ""));
  CHECK_FALSE(ErrorOf("{").empty());
  CHECK_FALSE(ErrorOf("[]").empty());
  CHECK(Contains(ErrorOf("{}"), "entrypoint"));
  CHECK(
      Contains(ErrorOf(R"({"entrypoint": 1})"), "entrypoint must be a string, got <class 'int'>"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "submission_id": []})"), "submission_id"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "unknown": 1})"), "'unknown'"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "metadata": {"a": 1}})"), "metadata values"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "entrypoint_num_cpus": "1"})"),
                 "entrypoint_num_cpus"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "entrypoint_num_cpus": -1})"),
                 "entrypoint_num_cpus"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "entrypoint_memory": 1.5})"), "entrypoint_memory"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "entrypoint_resources": {"a": "b"}})"),
                 "entrypoint_resources values"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "entrypoint_label_selector": {"a": 1}})"),
                 "entrypoint_label_selector values"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "runtime_env": {"env_vars": {"a": 1}}})"),
                 "env_vars"));
  CHECK(Contains(ErrorOf(R"({"entrypoint": "x", "runtime_env": {"java_jars": ["a.jar"]}})"),
                 "java_jars"));
}

}  // namespace job_request_test
}  // namespace sheaf::dashboard
