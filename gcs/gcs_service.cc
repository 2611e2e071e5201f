// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/gcs_service.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"
#include "gcs/submissions/waiting_demand.h"

namespace sheaf {
namespace {

constexpr char kClusterIdKey[] = "cluster_id";
constexpr char kTermKey[] = "term";
constexpr size_t kMaxWaiting = 100'000;  // Requests that wait for the term or the recovery.
constexpr Nanos kSweepPeriod = 60 * kSecond;

std::string MakeClusterId(Random& random) {
  const uint64_t words[2] = {random.Next(), random.Next()};
  return std::string(reinterpret_cast<const char*>(words), sizeof words);
}

}  // namespace

GcsService::GcsService(GcsOptions options, const Clock& clock, Storage& storage,
                       Transport& transport, Random& random)
    : options_(std::move(options)),
      clock_(clock),
      storage_(storage),
      transport_(transport),
      random_(random),
      pipeline_(storage, transport),
      publisher_(transport),
      events_(clock_, options_.unix_ns_at_zero, term_),
      context_{options_, clock_, transport_, pipeline_, publisher_, term_, events_},
      nodes_(context_, [this](NodeNumber node) { OnNodeDead(node); }),
      jobs_(
          context_, [this](JobNumber job) { OnJobEnded(job); },
          [this](JobNumber job) { return actors_.KeepsJob(job); }),
      groups_(context_, nodes_.table()),
      placement_(nodes_.table(), groups_.table(), random_),
      actors_(context_, nodes_.table(), jobs_.table(), placement_,
              [this](JobNumber job) { ReleaseKeys(job); }),
      submissions_(context_, nodes_.table(), placement_),
      key_values_(
          context_, [this](JobNumber job) { return NeedsKeys(job); },
          [this](std::string_view name) { return submissions_.table().NamesPackage(name); }) {}

absl::Status GcsService::Start() {
  SHEAF_RETURN_IF_ERROR(
      storage_.LoadAll([this](Table table, std::string_view key, std::string_view value) {
        switch (table) {
          case Table::kMeta:
            if (key == kClusterIdKey) cluster_id_ = std::string(value);
            if (key == kTermKey) term_ = NumberFromRowKey<uint64_t>(value).value_or(0);
            if (key == "last_node") nodes_.LoadLastNumber(value);
            if (key == "last_job") jobs_.LoadLastNumber(value);
            break;
          case Table::kNodes:
            nodes_.LoadNode(value);
            break;
          case Table::kJobs:
            jobs_.LoadJob(value);
            break;
          case Table::kActors:
            actors_.Load(key, value);
            break;
          case Table::kGroups:
            groups_.Load(key, value);
            break;
          case Table::kKeyValues:
            key_values_.Load(key, value);
            break;
          case Table::kKeyOwners:
            key_values_.LoadOwner(key);
            break;
          case Table::kSubmissions:
            submissions_.Load(value);
            break;
          case Table::kAnswers:
            pipeline_.Load(key, value);
            break;
        }
      }));
  if (cluster_id_.empty()) {
    cluster_id_ = options_.cluster_id.empty() ? MakeClusterId(random_) : options_.cluster_id;
  } else if (!options_.cluster_id.empty() && options_.cluster_id != cluster_id_) {
    return absl::FailedPreconditionError("the storage of the GCS belongs to another cluster");
  }
  term_ = std::max(term_ + 1, options_.least_term);
  publisher_.set_term(term_);
  for (const auto& [node, info] : nodes_.table().all()) {
    if (nodes_.table().IsMember(node)) unreported_.insert(node);
  }
  // When all that are on disk are heard or dead, and have had time to report.
  recovery_ends_ = Deadline(clock_.Now(), options_.return_within + options_.dead_after);
  next_sweep_ = Deadline(clock_.Now(), kSweepPeriod);
  CommitTerm();
  return absl::OkStatus();
}

std::map<NodeNumber, std::string> GcsService::Addresses() const {
  std::map<NodeNumber, std::string> addresses;
  for (const auto& [node, info] : nodes_.table().all()) {
    if (nodes_.table().IsMember(node) && !info.address().empty())
      addresses.emplace(node, info.address());
  }
  return addresses;
}

void GcsService::CommitTerm() {
  term_in_progress_ = true;
  storage_.CommitVital(
      {{Table::kMeta, kClusterIdKey, cluster_id_}, {Table::kMeta, kTermKey, RowKey(term_)}},
      [this](const absl::Status& status) {
        term_in_progress_ = false;  // On a full disk Tick tries again.
        if (status.ok()) OnTermDurable();
      });
}

void GcsService::OnTermDurable() {
  serving_ = true;
  for (const NodeNumber node : unreported_) {
    proto::GcsEvent event;
    event.set_client(RayletOf(node).packed());
    event.mutable_restarted()->set_term(term_);
    SendMessage(transport_.To(RayletOf(node)), FrameKind::kGcsEvent, event);
  }
  CheckRecovered();
  for (auto& [from, request] : std::exchange(early_, {})) Handle(from, std::move(request));
}

void GcsService::OnFrame(ProcessId from, const Frame& frame) {
  proto::GcsRequest request;
  if (frame.kind != FrameKind::kGcsRequest || from == kGcs ||
      !request.ParseFromArray(frame.body.data(), static_cast<int>(frame.body.size()))) {
    ++malformed_;
    return;
  }
  if (serving_) {
    Handle(from, std::move(request));
  } else if (early_.size() < kMaxWaiting) {
    early_.emplace_back(from, std::move(request));  // Who is dropped asks again.
  }
}

void GcsService::Handle(ProcessId from, proto::GcsRequest request) {
  const GcsOperation operation = OperationOf(request.body_case());
  const ProcessId client = ProcessId::Unpack(request.client());
  const bool raylet_in_own_name =
      client.process == 0 && client.node == from.node && client.node != 0;
  if (operation.name == nullptr || client.node != from.node ||
      (operation.raylet_only && !raylet_in_own_name)) {
    ++malformed_;
    Call refused{from, client, request.sequence()};
    pipeline_.Answer(std::make_shared<Call>(refused),
                     ErrorReply(ErrorKind::kInvalidArgument,
                                operation.name == nullptr
                                    ? "the GCS does not know this request; is its version older?"
                                    : absl::StrCat(client.ToString(), " may not ask for ",
                                                   operation.name, " through ", from.ToString())));
    return;
  }
  ++requests_[request.body_case()];
  if (!IsAllowed({from, client, request.sequence()}, request.body_case())) return;
  // What the links of a node say in its raylet's name (NodeConnections::ReportUnheard) goes on when
  // that raylet hangs.
  const bool of_links = request.has_unregister_node() && request.unregister_node().node() != 0 &&
                        request.unregister_node().node() != from.node && request.sequence() == 0;
  if (!of_links) nodes_.OnHeard(from.node);
  if (recovering_ && operation.waits_for_reports) {
    ++deferrals_;
    if (deferred_.size() < kMaxWaiting) deferred_.emplace_back(from, std::move(request));
    return;
  }
  CallPtr call = pipeline_.Admit(from, request, operation.keep_answer, operation.durable_answer);
  if (call) Dispatch(std::move(call), request);
}

// A node that is not a member has no say: it was declared dead, and others may do its work already.
bool GcsService::IsAllowed(const Call& call, Body body) {
  const bool has_number = call.from.node != 0;
  if (has_number ? nodes_.table().IsMember(call.from.node) || body == proto::GcsRequest::kHeartbeat
                 : body == proto::GcsRequest::kRegisterNode ||
                       body == proto::GcsRequest::kDescribeCluster) {
    return true;
  }
  pipeline_.Answer(std::make_shared<Call>(call),
                   ErrorReply(ErrorKind::kNodeDied, absl::StrCat("node ", call.from.node,
                                                                 " is no member of the cluster")));
  return false;
}

void GcsService::Dispatch(CallPtr call, const proto::GcsRequest& request) {
  using R = proto::GcsRequest;
  const NodeNumber node = call->from.node;
  switch (request.body_case()) {
    case R::kRegisterNode:
      return nodes_.Register(std::move(call), request.register_node(), cluster_id_);
    case R::kHeartbeat:
      nodes_.OnHeartbeat(call, node, request.heartbeat());
      return placement_.OnHeartbeat(node);
    case R::kNodeReport:
      return OnNodeReport(call, request.node_report());
    case R::kUnregisterNode:
      return nodes_.Unregister(std::move(call), node, request.unregister_node());
    case R::kListNodes:
      return nodes_.List(call);
    case R::kReportEvent:
      events_.OnReport(node, request.report_event().event());
      return pipeline_.Answer(call, {});
    case R::kListDemand: {
      proto::GcsReply reply;
      *reply.mutable_demand() = DemandOf(actors_.table(), submissions_.table());
      return pipeline_.Answer(call, std::move(reply));
    }
    case R::kListEvents: {
      proto::GcsReply reply;
      events_.List(request.list_events(), reply.mutable_events());
      return pipeline_.Answer(call, std::move(reply));
    }
    case R::kRegisterJob:
      return jobs_.Register(std::move(call), request.register_job());
    case R::kFinishJob:
      return jobs_.Finish(std::move(call), request.finish_job());
    case R::kListJobs:
      return jobs_.List(call);
    case R::kSubscribe:
      return Subscribe(call, request.subscribe());
    case R::kUnsubscribe:
      publisher_.Unsubscribe(call->client, request.unsubscribe().subscription());
      return pipeline_.Answer(call, {});
    case R::kProcessGone: {
      const ProcessId process = ProcessId::Unpack(request.process_gone().process());
      if (process.node == node && process.process != 0)
        OnProcessGone(process, request.process_gone().death());
      return pipeline_.Answer(call, {});
    }
    case R::kDescribeCluster: {
      proto::GcsReply reply;
      reply.mutable_cluster()->set_cluster_id(cluster_id_);
      reply.mutable_cluster()->set_term(term_);
      reply.mutable_cluster()->set_version(options_.version);
      reply.mutable_cluster()->set_read_only(storage_.read_only());
      reply.mutable_cluster()->set_recovering(recovering_);
      return pipeline_.Answer(call, std::move(reply));
    }
    default:
      if (request.body_case() >= R::kKvPut) return DispatchKeyValue(std::move(call), request);
      if (request.body_case() >= R::kSubmitEntrypoint)
        return DispatchSubmission(std::move(call), request);
      return DispatchActorOrGroup(std::move(call), request);
  }
}

void GcsService::DispatchActorOrGroup(CallPtr call, const proto::GcsRequest& request) {
  using R = proto::GcsRequest;
  const NodeNumber node = call->from.node;
  switch (request.body_case()) {
    case R::kRegisterActor:
      return actors_.Register(std::move(call), request.register_actor());
    case R::kLookupActor:
      return actors_.Lookup(call, request.lookup_actor());
    case R::kListActors:
      return actors_.List(call, request.list_actors());
    case R::kActorStateReport:
      return actors_.OnReport(std::move(call), node, request.actor_state_report());
    case R::kEndActor:
      return actors_.End(std::move(call), request.end_actor());
    case R::kActorRows:
      actors_.OnRows(node, request.actor_rows().rows());
      return pipeline_.Answer(call, {});
    case R::kRegisterGroup:
      return groups_.Register(std::move(call), node, request.register_group());
    case R::kLookupGroup:
      return groups_.Lookup(call, request.lookup_group());
    case R::kListGroups:
      return groups_.List(call);
    case R::kGroupReport:
      return groups_.OnReport(std::move(call), node, request.group_report());
    case R::kRemoveGroup:
      return groups_.Remove(std::move(call), request.remove_group());
    default:
      return;  // OperationOf knows no others.
  }
}

void GcsService::DispatchSubmission(CallPtr call, const proto::GcsRequest& request) {
  using R = proto::GcsRequest;
  const NodeNumber node = call->from.node;
  switch (request.body_case()) {
    case R::kSubmitEntrypoint:
      return submissions_.Submit(std::move(call), request.submit_entrypoint());
    case R::kGetSubmission:
      return submissions_.Get(call, request.get_submission());
    case R::kListSubmissions:
      return submissions_.List(call, request.list_submissions());
    case R::kStopSubmission:
      return submissions_.Stop(std::move(call), request.stop_submission());
    case R::kDeleteSubmission:
      return submissions_.Delete(std::move(call), request.delete_submission());
    case R::kForgottenSubmissions:
      return submissions_.TellForgotten(call, node, request.forgotten_submissions());
    case R::kEntrypointReport:
      return submissions_.OnReport(std::move(call), node, request.entrypoint_report());
    default:
      return;  // OperationOf knows no others.
  }
}

void GcsService::DispatchKeyValue(CallPtr call, const proto::GcsRequest& request) {
  using R = proto::GcsRequest;
  switch (request.body_case()) {
    case R::kKvPut:
      return key_values_.Put(std::move(call), request.kv_put());
    case R::kKvGet:
      return key_values_.Get(call, request.kv_get());
    case R::kKvDelete:
      return key_values_.Delete(std::move(call), request.kv_delete());
    case R::kKvKeys:
      return key_values_.Keys(call, request.kv_keys());
    case R::kKvExists:
      return key_values_.Exists(call, request.kv_exists());
    case R::kKvOwn:
      return key_values_.Own(std::move(call), request.kv_own());
    case R::kKvList:
      return key_values_.List(call, request.kv_list());
    default:
      return;  // OperationOf knows no others.
  }
}

void GcsService::Subscribe(const CallPtr& call, const proto::Subscribe& request) {
  using S = proto::Subscribe;
  const bool soft = request.channel() == S::NODES || request.channel() == S::ACTORS ||
                    request.channel() == S::GROUPS;
  if (recovering_ && soft) {
    proto::GcsRequest again;
    again.set_client(call->client.packed());
    again.set_sequence(call->sequence);
    *again.mutable_subscribe() = request;
    ++deferrals_;
    if (deferred_.size() < kMaxWaiting) deferred_.emplace_back(call->from, std::move(again));
    return;
  }
  proto::GcsReply reply;
  proto::Snapshot* snapshot = reply.mutable_snapshot();
  if (!S::Channel_IsValid(request.channel()) ||
      request.key().size() > KeyValueTable::kMaxKeyBytes ||
      request.name_space().size() > KeyValueTable::kMaxKeyBytes ||
      !publisher_.Subscribe(call->client, call->from, request, snapshot)) {
    return pipeline_.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument,
                         "no such channel, a key too long, or too many subscriptions"));
  }
  bool fits = true;
  if (!snapshot->current()) {
    switch (request.channel()) {
      case S::NODES:
        nodes_.AddSnapshot(snapshot);
        break;
      case S::JOBS:
        jobs_.AddSnapshot(snapshot);
        break;
      case S::ACTORS:
        fits = actors_.AddSnapshot(request.key(), snapshot);
        break;
      case S::GROUPS:
        fits = groups_.AddSnapshot(request.key(), snapshot);
        break;
      default:
        fits = key_values_.AddSnapshot(request, snapshot);
        break;
    }
  }
  if (!fits) {
    publisher_.Unsubscribe(call->client, request.subscription());
    reply = ErrorReply(ErrorKind::kInvalidArgument,
                       "the snapshot has more than 48 MiB, or the key is no id");
  }
  pipeline_.Answer(call, std::move(reply));
}

void GcsService::OnNodeReport(const CallPtr& call, const proto::NodeReport& report) {
  const NodeNumber node = call->from.node;
  if (report.has_available()) nodes_.SetAvailable(node, report.available());
  for (const proto::ActorStateReport& actor : report.actors())
    actors_.OnReport(nullptr, node, actor);
  actors_.OnRows(node, report.rows());
  groups_.OnAttached(node, report.attached_groups());
  submissions_.OnNodeReport(node, report.entrypoints());
  for (const proto::GroupReport& group : report.groups()) groups_.OnReport(nullptr, node, group);
  // What ended while no GCS listened.
  std::set<ProcessId> living;
  for (const uint64_t packed : report.processes()) living.insert(ProcessId::Unpack(packed));
  std::set<ProcessId> remembered = actors_.CreatorsOn(node);
  remembered.merge(groups_.MakersOn(node));
  remembered.merge(publisher_.ClientsOn(node));
  remembered.merge(pipeline_.ClientsOn(node));
  for (const ProcessId process : remembered) {
    if (!process.is_raylet() && !living.contains(process)) OnProcessGone(process, {});
  }
  jobs_.EndWhere([&](ProcessId driver) { return driver.node == node && !living.contains(driver); });
  unreported_.erase(node);
  pipeline_.Answer(call, {});
  CheckRecovered();
}

void GcsService::CheckRecovered() {
  if (!serving_ || !recovering_ || (!unreported_.empty() && clock_.Now() < recovery_ends_)) return;
  recovering_ = false;
  jobs_.EndWhere([this](ProcessId driver) { return !nodes_.table().IsMember(driver.node); });
  actors_.Activate();
  groups_.Activate();
  submissions_.Activate();
  for (const JobNumber job : key_values_.table().Owners()) ReleaseKeys(job);
  for (auto& [from, request] : std::exchange(deferred_, {})) Handle(from, std::move(request));
}

void GcsService::OnProcessGone(ProcessId process, const proto::Death& death) {
  jobs_.OnProcessGone(process, death);
  actors_.OnProcessGone(process);
  groups_.OnProcessGone(process);
  publisher_.ForgetClient(process);
  pipeline_.ForgetClient(process);
}

void GcsService::OnNodeDead(NodeNumber node) {
  unreported_.erase(node);
  jobs_.EndWhere([node](ProcessId driver) { return driver.node == node; });
  actors_.OnNodeDead(node);
  groups_.OnNodeDead(node);
  submissions_.OnNodeDead(node);
  publisher_.ForgetNode(node);
  pipeline_.ForgetNode(node);
  CheckRecovered();
}

void GcsService::OnJobEnded(JobNumber job) {
  actors_.OnJobEnded(job);
  ReleaseKeys(job);
}

// A detached actor outlives its job and may restart: it needs the code.
bool GcsService::NeedsKeys(JobNumber job) const {
  const proto::JobInfo* info = jobs_.table().Find(job);
  return (info != nullptr && info->state() == proto::JobInfo::RUNNING) || actors_.KeepsJob(job) ||
         job == KeyValueTable::kNoJobYet;
}

void GcsService::ReleaseKeys(JobNumber job) {
  if (!recovering_ && !NeedsKeys(job)) key_values_.Release(job);
}

void GcsService::Tick() {
  if (!serving_) {
    if (!term_in_progress_) CommitTerm();
    return;
  }
  nodes_.Tick();
  CheckRecovered();
  jobs_.Tick();
  actors_.Tick();
  groups_.Tick();
  submissions_.Tick();
  pipeline_.Tick();
  if (clock_.Now() < next_sweep_) return;
  next_sweep_ = Deadline(clock_.Now(), kSweepPeriod);
  for (const JobNumber job : key_values_.table().Owners()) ReleaseKeys(job);
  key_values_.DropUnused();
}

}  // namespace sheaf
