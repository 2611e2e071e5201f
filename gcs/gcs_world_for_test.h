// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: a GcsService on a clock, a disk and a network that the test holds in its hands.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "base/executor.h"
#include "base/fake_clock.h"
#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"
#include "gcs/gcs_service.h"
#include "gcs/storage/memory_storage.h"

namespace sheaf {

class GcsWorld {
 public:
  explicit GcsWorld(GcsOptions options = {}) : options_(std::move(options)) { Boot(); }

  // Ends the GCS as a crash does and starts it on what the disk kept.
  void Restart() {
    service_.reset();
    storage_.reset();
    transport.sent.clear();
    Boot();
  }

  // Registers one more node; its number.
  NodeNumber AddNode(NodeNumber replaces = 0) {
    proto::GcsRequest request;
    proto::RegisterNode* node = request.mutable_register_node();
    node->set_nonce(std::string(16, static_cast<char>('a' + ++nonces_)));
    node->set_version(options_.version);
    node->set_host_name("host");
    node->set_replaces(replaces);
    (*node->mutable_total()->mutable_amounts())["CPU"] = 20'000;
    return Ask({0, nonces_}, request).node_registered().node();
  }
  // A job whose driver is process 1 of `node`.
  JobNumber AddJob(NodeNumber node, uint32_t process = 1) {
    proto::GcsRequest request;
    request.mutable_register_job()->set_driver(ProcessId{node, process}.packed());
    return Ask({node, process}, request).job_registered().job();
  }
  void Heartbeat(NodeNumber node) {
    proto::GcsRequest request;
    request.mutable_heartbeat();
    Tell(RayletOf(node), request);
  }
  void ReportNode(NodeNumber node, proto::NodeReport report = {}) {
    proto::GcsRequest request;
    *request.mutable_node_report() = std::move(report);
    Tell(RayletOf(node), request);
  }

  // Sends under the client's next sequence number, and returns that number.
  uint64_t Send(ProcessId client, proto::GcsRequest request) {
    request.set_sequence(++sequences_[client]);
    return Repeat(client, request);
  }
  // Sends as it is.
  uint64_t Repeat(ProcessId client, proto::GcsRequest request) {
    request.set_client(client.packed());
    service_->OnFrame(Via(client), {FrameKind::kGcsRequest, request.SerializeAsString()});
    return request.sequence();
  }
  void Tell(ProcessId client, proto::GcsRequest request) {
    request.set_sequence(0);
    Repeat(client, std::move(request));
  }
  proto::GcsReply Ask(ProcessId client, proto::GcsRequest request) {
    const uint64_t sequence = Send(client, std::move(request));
    const std::vector<proto::GcsReply> replies = RepliesTo(client, sequence);
    return replies.empty() ? proto::GcsReply() : replies.back();
  }

  std::vector<proto::GcsReply> RepliesTo(ProcessId client, uint64_t sequence) const {
    std::vector<proto::GcsReply> replies;
    for (const auto& sent : transport.sent) {
      proto::GcsReply reply;
      if (sent.kind == FrameKind::kGcsReply && reply.ParseFromString(sent.body) &&
          reply.client() == client.packed() && reply.sequence() == sequence) {
        replies.push_back(std::move(reply));
      }
    }
    return replies;
  }
  // What was said unasked to `client` since the last call.
  std::vector<proto::GcsEvent> TakeEvents(ProcessId client) {
    std::vector<proto::GcsEvent> events;
    for (auto at = transport.sent.begin(); at != transport.sent.end();) {
      proto::GcsEvent event;
      if (at->kind == FrameKind::kGcsEvent && event.ParseFromString(at->body) &&
          event.client() == client.packed()) {
        events.push_back(std::move(event));
        at = transport.sent.erase(at);
      } else {
        ++at;
      }
    }
    return events;
  }
  // Lets time pass in steps of 100 ms, with a heartbeat of each node in `alive` per step.
  void Pass(Nanos duration, const std::vector<NodeNumber>& alive = {}) {
    for (Nanos passed = 0; passed < duration; passed += 100 * kMillisecond) {
      clock.Advance(100 * kMillisecond);
      for (const NodeNumber node : alive) Heartbeat(node);
      service_->Tick();
    }
  }

  GcsService& service() { return *service_; }
  MemoryStorage& storage() { return *storage_; }
  MemoryStorage::Disk& disk() { return disk_; }

  FakeClock clock;
  RecordingTransport transport;

 private:
  static ProcessId Via(ProcessId client) {
    return client.node == 0 ? client : RayletOf(client.node);
  }
  void Boot() {
    storage_ = std::make_unique<MemoryStorage>(disk_, executor_);
    service_ = std::make_unique<GcsService>(options_, clock, *storage_, transport, random_);
    started = service_->Start();
  }

  const GcsOptions options_;
  SeededRandom random_{1};
  InlineExecutor executor_;
  MemoryStorage::Disk disk_;
  std::unique_ptr<MemoryStorage> storage_;
  std::unique_ptr<GcsService> service_;
  std::map<ProcessId, uint64_t> sequences_;
  uint32_t nonces_ = 0;

 public:
  absl::Status started;
};

inline proto::GcsRequest KvPut(const std::string& key, const std::string& value,
                               bool overwrite = true) {
  proto::GcsRequest request;
  request.mutable_kv_put()->set_name_space("ns");
  request.mutable_kv_put()->set_key(key);
  request.mutable_kv_put()->set_value(value);
  request.mutable_kv_put()->set_overwrite(overwrite);
  return request;
}
inline proto::GcsRequest KvGet(const std::string& key) {
  proto::GcsRequest request;
  request.mutable_kv_get()->set_name_space("ns");
  request.mutable_kv_get()->add_keys(key);
  return request;
}
inline bool Is(const proto::GcsReply& reply, ErrorKind kind) {
  return reply.error() == static_cast<uint32_t>(kind);
}

}  // namespace sheaf
