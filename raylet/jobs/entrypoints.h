// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The submitted commands of this node. The GCS decides that one starts or ends; this raylet takes
// its resources, has it started and reports. What it has no room for at once it gives back: the GCS
// waits, and looks at all nodes. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/workers/entrypoint_launcher.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class Entrypoints {
 public:
  // All outlive it.
  struct Deps {
    GcsLink& gcs;
    EntrypointLauncher& launcher;
    ResourceLedger& ledger;
    const ClusterView& view;
    std::function<void()> on_room;  // Resources came back.
  };
  explicit Entrypoints(Deps deps) : deps_(std::move(deps)) {}
  Entrypoints(const Entrypoints&) = delete;
  Entrypoints& operator=(const Entrypoints&) = delete;

  // --- What the GCS says.
  void OnStart(const proto::StartEntrypoint& message);
  void OnStop(const proto::StopEntrypoint& message);
  // --- What the launcher says.
  void OnRunning(const std::string& submission_id, const proto::EntrypointReport::Running& running);
  void OnEnded(const std::string& submission_id, proto::EntrypointReport::Ended ended);

  // All are told to end, as the node does.
  void StopAll();
  bool empty() const { return entrypoints_.empty(); }
  // It runs, or is about to.
  bool Has(const std::string& submission_id) const { return entrypoints_.contains(submission_id); }
  void FillReport(proto::NodeReport* report) const;

 private:
  // Of those that are over: an order of one may come again, late.
  static constexpr size_t kRemembered = 4096;
  using Attempt = std::pair<std::string, uint32_t>;
  struct Running {
    proto::EntrypointReport report;  // How it is.
    Allocation allocation;
  };
  void Report(const proto::EntrypointReport& report);
  // A word that ends an attempt, kept until the GCS has it on disk.
  void ReportEnd(proto::EntrypointReport report);
  void Remember(const Attempt& attempt);  // Its end is on the disk of the GCS.
  void GiveBack(const proto::StartEntrypoint& message, const std::string& why);

  const Deps deps_;
  absl::btree_map<std::string, Running> entrypoints_;
  absl::btree_map<Attempt, proto::EntrypointReport> unacknowledged_;
  // A GCS that goes on from an older disk orders one of these once more, and is told again.
  absl::btree_map<Attempt, proto::EntrypointReport> over_;
  std::deque<Attempt> over_order_;
};

}  // namespace sheaf
