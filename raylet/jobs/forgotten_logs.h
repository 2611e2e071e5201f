// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Deletes the output of submitted commands that the GCS does not remember any more: once a minute
// the logs that are here and that no command writes are named to it. So nothing is left behind by a
// node, a GCS or a word between them that was lost. Pure; one thread.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/logs/node_logs.h"

namespace sheaf {

class ForgottenLogs {
 public:
  static constexpr Nanos kPeriod = 60 * kSecond;

  // All outlive it.
  struct Deps {
    Clock& clock;
    GcsLink& gcs;
    NodeLogs* logs;  // nullptr: this node keeps none.
    std::function<bool(const std::string& submission_id)> runs_entrypoint;
  };
  explicit ForgottenLogs(Deps deps)
      : deps_(std::move(deps)), next_look_(Deadline(deps_.clock.Now(), kPeriod)) {}
  ForgottenLogs(const ForgottenLogs&) = delete;
  ForgottenLogs& operator=(const ForgottenLogs&) = delete;

  void Tick();

 private:
  void AskGcs(const proto::StateAnswer& here);

  const Deps deps_;
  Nanos next_look_;
  bool looking_ = false;
};

}  // namespace sheaf
