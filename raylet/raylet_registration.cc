// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a node becomes a member: it asks the GCS for its number until it has one.
#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "raylet/raylet_process.h"

namespace sheaf {
namespace {

// What is sent waits for the link to be up: this is for a GCS that was lost with what it had taken.
constexpr Nanos kFirstResend = 500 * kMillisecond;
constexpr Nanos kLongestResend = 8 * kSecond;

std::string RandomNonce(Random& random) {
  const uint64_t words[2] = {random.Next(), random.Next()};
  return std::string(reinterpret_cast<const char*>(words), sizeof(words));
}

}  // namespace

absl::Status RayletProcess::Register() {
  SeededRandom random(EntropySeed());
  const RayletOptions& node = options_.raylet;
  proto::GcsRequest request;
  request.set_client(nameless_.packed());
  request.set_sequence(1);
  proto::RegisterNode& body = *request.mutable_register_node();
  body.set_nonce(RandomNonce(random));
  body.set_version(node.version);
  body.set_address(node.address);
  body.set_host_name(node.host_name);
  body.set_metrics_url(node.metrics_url);
  body.set_replaces(options_.replaces);
  node.totals.ToMap(*body.mutable_total()->mutable_amounts());
  for (const auto& [key, value] : node.labels) (*body.mutable_labels())[key] = value;
  body.set_start_time_unix_s((node.unix_ns_at_zero + MonotonicNow()) / kSecond);

  const Nanos deadline = Deadline(MonotonicNow(), options_.register_timeout);
  Nanos resend = kFirstResend;
  MutexLock lock(mutex_);
  while (!registration_) {
    if (!refused_.ok()) return refused_;
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) return absl::DeadlineExceededError("the GCS does not answer");
    lock.Unlock();
    options_.to_gcs(nameless_, FrameKind::kGcsRequest, request.SerializeAsString());
    lock.Lock();
    registered_or_live_.WaitFor(
        mutex_, std::min(resend, left),
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return registration_ || !refused_.ok(); });
    resend = std::min(2 * resend, kLongestResend);
  }
  const proto::GcsReply& reply = *registration_;
  if (reply.error() != 0 || reply.node_registered().node() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the GCS refuses this node: ", reply.message()));
  }
  node_ = reply.node_registered().node();
  options_.on_registered(node_);
  options_.cluster_id = absl::BytesToHexString(reply.node_registered().cluster_id());
  if (options_.spans != nullptr) options_.spans->SetCluster(reply.node_registered().cluster_id());
  options_.raylet.gcs_term = reply.node_registered().term();
  options_.raylet.heartbeat_period =
      std::max<Nanos>(reply.node_registered().heartbeat_period_ns(), kMillisecond);
  return absl::OkStatus();
}

}  // namespace sheaf
