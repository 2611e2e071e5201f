// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Commands that users submit to the cluster: which node runs each, orders to raylets, their reports.
// A node is on disk before its raylet hears of a submission, and a submission that a raylet may have
// begun is never given to another one: it runs once or not at all. Durable: all but what it waits
// for.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gcs/actors/actor_placement.h"
#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/node_table.h"
#include "gcs/submissions/deleted_submissions.h"
#include "gcs/submissions/submission_table.h"

namespace sheaf {

class SubmissionService {
 public:
  static constexpr size_t kMaxLiving = 10'000;
  static constexpr Nanos kStartTimeout = 900 * kSecond;

  // All outlive it.
  SubmissionService(const GcsContext& context, const NodeTable& nodes, ActorPlacement& placement);

  void Load(std::string_view value);
  // The raylets have reported (or had their time): orders may go out.
  void Activate();

  void Submit(CallPtr call, const proto::SubmitEntrypoint& request);
  void Get(const CallPtr& call, const proto::GetSubmission& request) const;
  void List(const CallPtr& call, const proto::ListSubmissions& request) const;
  void Stop(CallPtr call, const proto::StopSubmission& request);
  void Delete(CallPtr call, const proto::DeleteSubmission& request);
  // To the raylet of `node`, which has their logs.
  void TellForgotten(const CallPtr& call, NodeNumber node,
                     const proto::ForgottenSubmissions& asked) const;
  // From the raylet of `node`; `call` may be nullptr.
  void OnReport(CallPtr call, NodeNumber node, const proto::EntrypointReport& report);
  // All that `node` has, after a restart of the GCS: what is missing there has ended unseen.
  void OnNodeReport(NodeNumber node,
                    const google::protobuf::RepeatedPtrField<proto::EntrypointReport>& entrypoints);
  void OnNodeDead(NodeNumber node);
  void Tick();

  const SubmissionTable& table() const { return table_; }
  // By Submission::State, since the start: how many ended so, and as PENDING how many were accepted.
  const std::array<uint64_t, 6>& told() const { return told_; }

 private:
  struct Happening {
    std::string id;
    uint32_t attempt = 0;  // 0: any.
    SubmissionEvent event;
    proto::Submission::Failure failure = proto::Submission::NONE;
    proto::Death death = {};
    std::string words = {};
    NodeNumber node = 0;  // kPlaced.
    int32_t os_pid = 0;
    int64_t started_unix_ms = 0;
  };
  // What commands about this submission take turns by.
  static std::string LatchOf(const std::string& id);
  static proto::GcsReply NoSuchSubmission(const std::string& id);
  Outcome PlanSubmission(const proto::SubmitEntrypoint& request, NodeNumber* node);
  void Happen(CallPtr call, Happening what);
  Outcome Plan(const Happening& what);
  void Apply(const Happening& what, proto::Submission info);
  void End(const Happening& what, proto::Submission::State next, proto::Submission* info) const;
  void Order(SubmissionEntry& entry);
  void OnPlaced(SubmissionEntry& entry);
  void SendStart(const SubmissionEntry& entry);
  void SendStop(NodeNumber node, const std::string& id, uint32_t attempt);
  ActorPlacement::Choice ChooseNode(const proto::Entrypoint& entrypoint, NodeNumber avoid);
  NodeNumber Head(proto::NodeInfo::State state = proto::NodeInfo::ALIVE) const;
  proto::Submission Shown(const SubmissionEntry& entry) const;
  int64_t UnixMilliseconds() const;
  uint32_t NextAttempt();
  std::vector<std::string> Surplus() const;
  Outcome PlanForgetting(const std::string& id);
  void Trim();
  void Tell(const proto::Submission& info);

  const GcsContext context_;
  const NodeTable& nodes_;
  ActorPlacement& placement_;
  SubmissionTable table_;
  DeletedSubmissions deleted_;
  std::array<uint64_t, 6> told_{};
  bool active_ = false;
  bool trims_ = false;                 // Until what Trim forgets is off the disk.
  uint64_t last_number_ = 0;           // Given to a submission that may not be on disk yet.
  uint32_t last_attempt_ = 0;          // The same.
  std::string looked_at_;              // The last one that Tick came to.
  std::vector<Happening> unrecorded_;  // Did not get to disk: again at the next Tick.
};

}  // namespace sheaf
