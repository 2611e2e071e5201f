// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bodies of POST /api/jobs/, and rows of jobs whose texts somebody else wrote.
#include "dashboard/job_request.h"
#include "dashboard/job_rows.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

std::vector<std::string> fuzz::Seeds() {
  return {
      R"json({"entrypoint":"true","submission_id":"a","metadata":{"a":"b"}})json",
      R"json({"entrypoint":"true","entrypoint_resources":{"a":1},"entrypoint_num_cpus":0.5})json",
      R"json({"entrypoint":"true","entrypoint_label_selector":{"a":"!in(b,c)"}})json",
      R"json({"entrypoint":"true","runtime_env":{"env_vars":{"A":"1"},"pip":["a"]}})json"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const auto parsed = dashboard::ParseJobRequest(body, "key");
  proto::Submission submission;
  if (parsed.ok()) {
    *submission.mutable_entrypoint() = parsed->entrypoint();
  } else {
    submission.mutable_entrypoint()->set_runtime_env(body);
  }
  proto::StateAnswer jobs;
  jobs.add_jobs()->set_metadata(body);
  const dashboard::Drivers drivers = dashboard::SortDrivers(jobs);
  for (const auto& [id, row] : drivers.of_submission)
    dashboard::SubmissionJson(submission, &row, {}, true);
  for (const auto& [id, row] : drivers.others) dashboard::DriverJson(row, {});
  return 0;
}
