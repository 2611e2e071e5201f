// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Requests to the GCS, from raylets and processes that it knows and from others.
#include "gcs/gcs_world_for_test.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](uint8_t from, proto::GcsRequest request) {
    request.set_client(ProcessId{1, 1}.packed());
    request.set_sequence(seeds.size() + 1);
    seeds.push_back(
        FrameOf(from, static_cast<uint8_t>(FrameKind::kGcsRequest), request.SerializeAsString()));
  };
  proto::GcsRequest put;
  put.mutable_kv_put()->set_key("key");
  put.mutable_kv_put()->set_value("value");
  add(0, put);
  proto::GcsRequest get;
  get.mutable_kv_get()->add_keys("key");
  add(0, get);
  proto::GcsRequest node;
  node.mutable_register_node()->set_nonce(std::string(16, 'n'));
  add(1, node);
  proto::GcsRequest job;
  job.mutable_register_job()->set_driver(ProcessId{1, 1}.packed());
  add(0, job);
  proto::GcsRequest actors;
  actors.mutable_list_actors()->set_all_name_spaces(true);
  add(0, actors);
  proto::GcsRequest report;
  report.mutable_node_report();
  add(0, report);
  proto::GcsRequest submission;
  submission.mutable_submit_entrypoint()->mutable_entrypoint()->set_submission_id("job");
  submission.mutable_submit_entrypoint()->mutable_entrypoint()->set_command("true");
  add(0, submission);
  proto::GcsRequest running;
  running.mutable_entrypoint_report()->set_submission_id("job");
  running.mutable_entrypoint_report()->set_attempt(1);
  running.mutable_entrypoint_report()->mutable_running()->set_os_pid(7);
  add(0, running);
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static GcsWorld* world = nullptr;
  static int used = 0;
  if (used++ % 500 == 0) {
    delete world;
    world = new GcsWorld;
    world->AddNode();
    world->AddJob(1);
  }
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const ProcessId from =
        std::array{RayletOf(1), ProcessId{0, 7}, ProcessId{1, 1}, RayletOf(9)}[input.Byte() % 4];
    const auto kind = FrameKind{input.Byte()};
    const std::string body = input.Bytes(input.Short());
    world->service().OnFrame(from, {kind, body});
  }
  world->Pass(100 * kMillisecond, {1});
  world->transport.sent.clear();
  return 0;
}
