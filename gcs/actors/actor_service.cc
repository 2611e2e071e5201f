// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/actors/actor_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gcs/reply.h"

namespace sheaf {
namespace {

constexpr size_t kMaxReplyBytes = 48 << 20;  // A frame has at most 64 MiB.
constexpr size_t kMaxCreationBytes = 16 << 20;

std::string NameLatch(const std::string& name_space, const std::string& name) {
  return absl::StrCat("name/", name_space.size(), "/", name_space, "/", name);
}

}  // namespace

ActorService::ActorService(const GcsContext& context, const NodeTable& nodes, const JobTable& jobs,
                           ActorPlacement& placement,
                           std::function<void(JobNumber)> on_last_detached)
    : context_(context),
      nodes_(nodes),
      jobs_(jobs),
      life_(context, nodes, jobs, placement, table_, std::move(on_last_detached)) {}

void ActorService::Load(std::string_view key, std::string_view value) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(key);
  proto::ActorRecord record;
  if (!id.ok() || !record.ParseFromArray(value.data(), static_cast<int>(value.size()))) return;
  ActorEntry& entry = table_.Put(*id, std::move(record));
  entry.unaccounted = entry.is_alive() && entry.info().detached();
}

void ActorService::Activate() {
  life_.Activate();
  std::set<NodeNumber> dead;
  for (const auto& [id, entry] : table_.all()) {
    if (entry.is_alive() && !entry.info().detached() && !nodes_.IsMember(id.maker().node))
      dead.insert(id.maker().node);
  }
  for (const NodeNumber node : dead) OnNodeDead(node);
  Tick();
}

std::set<ProcessId> ActorService::CreatorsOn(NodeNumber node) const {
  std::set<ProcessId> creators;
  for (const ActorId& id : table_.NamedOfNode(node)) creators.insert(id.maker());
  return creators;
}

std::string ActorService::WhatIsWrong(const Call& call, const proto::RegisterActor& request) const {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  if (!id.ok() || id->is_nil()) return "an actor id has 16 bytes, not all of them 0";
  if (request.name().size() > kMaxNameBytes || request.name_space().size() > kMaxNameBytes)
    return absl::StrCat("a name or name space of more than ", kMaxNameBytes, " bytes");
  if (!request.detached() && request.name().empty())
    return "an actor without a name is managed by its creator alone";
  if (!request.detached() && id->maker() != call.client)
    return absl::StrCat("actor ", id->ToHex(), " was not made by ", call.client.ToString());
  if (request.detached() && jobs_.Find(request.job()) == nullptr)
    return absl::StrCat("no job ", request.job());
  if (const auto lease = ParseLeaseSpec(request.lease()); !lease.ok())
    return std::string(lease.status().message());
  if (request.creation().size() + request.handle().size() > kMaxCreationBytes)
    return "creation arguments of more than 16 MiB; put them into the object store";
  return "";
}

void ActorService::Register(CallPtr call, const proto::RegisterActor& request) {
  if (std::string wrong = WhatIsWrong(*call, request); !wrong.empty()) {
    return context_.pipeline.Answer(call,
                                    ErrorReply(ErrorKind::kInvalidArgument, std::move(wrong)));
  }
  const ActorId id = *ActorId::FromBinary(request.actor_id());
  std::vector<std::string> latches = {ActorLatch(id)};
  if (!request.name().empty()) latches.push_back(NameLatch(request.name_space(), request.name()));
  const auto registered = [this, job = request.job(), detached = request.detached()] {
    const auto at = registering_.find(job);
    if (detached && at != registering_.end()) registering_.erase(at);
  };
  context_.pipeline.Run(
      std::move(call), std::move(latches),
      [this, id, request, registered] { return PlanRegistration(id, request, registered); },
      registered);
}

Outcome ActorService::PlanRegistration(const ActorId& id, const proto::RegisterActor& request,
                                       const std::function<void()>& registered) {
  Outcome outcome;
  if (const ActorEntry* known = table_.Find(id)) {
    *outcome.reply.mutable_actor() = known->info();
    return outcome;
  }
  if (const ActorEntry* holder = table_.FindByName(request.name_space(), request.name())) {
    if (!request.get_if_exists()) {
      outcome.reply = ErrorReply(
          ErrorKind::kActorNameTaken,
          absl::StrCat("the name '", request.name(), "' is already taken in name space '",
                       request.name_space(), "'; choose another or get_if_exists"));
    }
    *outcome.reply.mutable_actor() = holder->info();
    return outcome;
  }
  const proto::JobInfo* job = jobs_.Find(request.job());
  if (request.detached()) {  // Its code goes with its job, or with the last such actor.
    const bool runs = job != nullptr && job->state() == proto::JobInfo::RUNNING;
    if (!runs && !KeepsJob(request.job())) {
      outcome.reply =
          ErrorReply(ErrorKind::kInvalidArgument, absl::StrCat("job ", request.job(), " is over"));
      return outcome;
    }
    registering_.insert(request.job());
  }
  proto::ActorRecord record;
  proto::ActorInfo* info = record.mutable_info();
  info->set_actor_id(request.actor_id());
  info->set_name(request.name());
  info->set_name_space(request.name_space());
  info->set_job(request.job());
  info->set_class_name(request.class_name());
  info->set_detached(request.detached());
  info->set_max_restarts(request.max_restarts());
  info->set_handle(request.handle());
  if (request.detached()) {
    info->set_incarnation(1);
    record.set_creation(request.creation());
    *record.mutable_lease() = request.lease();
  }
  *outcome.reply.mutable_actor() = *info;
  outcome.writes = {{Table::kActors, request.actor_id(), record.SerializeAsString()}};
  outcome.apply = [this, id, record, registered] {
    registered();
    ActorEntry& entry = table_.Put(id, record);
    PublishActor(context_.publisher, entry.info());
    if (entry.info().detached()) life_.Begin(id, entry);
  };
  return outcome;
}

void ActorService::Lookup(const CallPtr& call, const proto::LookupActor& request) const {
  const ActorEntry* entry = nullptr;
  if (request.actor_id().empty()) {
    entry = table_.FindByName(request.name_space(), request.name());
  } else if (const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id()); id.ok()) {
    entry = table_.Find(*id);
  }
  proto::GcsReply reply;
  if (entry == nullptr) {
    reply = ErrorReply(ErrorKind::kNotFound,
                       request.actor_id().empty()
                           ? absl::StrCat("no actor is named '", request.name(),
                                          "' in name space '", request.name_space(), "'")
                           : "no named or detached actor has this id");
  } else {
    *reply.mutable_actor() = entry->info();
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void ActorService::List(const CallPtr& call, const proto::ListActors& request) const {
  proto::GcsReply reply;
  proto::ActorList* list = reply.mutable_actors();
  const auto wanted = [&](const std::string& name_space) {
    return request.all_name_spaces() || name_space == request.name_space();
  };
  for (const auto& [id, entry] : table_.all()) {
    const bool shown =
        request.named_only() ? entry.is_alive() && !entry.info().name().empty() : true;
    if (!shown || !wanted(entry.info().name_space())) continue;
    *list->add_actors() = RowOf(entry.info());
    // Its creator knows better how it is.
    const auto row = table_.rows().find(id);
    if (!entry.info().detached() && entry.is_alive() && row != table_.rows().end()) {
      proto::ActorRow& listed = *list->mutable_actors(list->actors_size() - 1);
      listed = row->second;
      listed.set_name_space(entry.info().name_space());
      listed.set_job(entry.info().job());
    }
  }
  for (const auto& [id, row] : table_.rows()) {
    if (!request.named_only() && wanted(row.name_space()) && table_.Find(id) == nullptr)
      *list->add_actors() = row;
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void ActorService::End(CallPtr call, const proto::EndActor& request) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  if (!id.ok() || table_.Find(*id) != nullptr) return EndKnown(std::move(call), request);
  // Its registration may be on its way to the disk: behind that it is known.
  context_.pipeline.Run(nullptr, {ActorLatch(*id)}, [this, call, request]() -> Outcome {
    Outcome outcome;
    outcome.apply = [this, call, request] { EndKnown(call, request); };
    return outcome;
  });
}

void ActorService::EndKnown(CallPtr call, const proto::EndActor& request) {
  const absl::StatusOr<ActorId> id = ActorId::FromBinary(request.actor_id());
  const ActorEntry* entry = id.ok() ? table_.Find(*id) : nullptr;
  if (entry == nullptr) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kNotFound, "no named or detached actor has this id"));
  }
  proto::Death death = request.death();
  if (death.cause() == proto::Death::UNKNOWN) {
    death.set_cause(proto::Death::KILLED);
    if (death.message().empty())
      death.set_message(absl::StrCat("killed by ", call->client.ToString()));
  }
  if (!entry->info().detached()) {
    if (id->maker() != call->client && id->maker().node != call->from.node) {
      return context_.pipeline.Answer(
          call, ErrorReply(ErrorKind::kInvalidArgument,
                           "this actor is ended by its creator, " + id->maker().ToString()));
    }
    return EndNamed(std::move(call), *id, std::move(death));
  }
  if (request.leaves()) return life_.Leave(std::move(call), *id);
  if (request.restart()) {
    life_.Restart(*id, death.message());
    return context_.pipeline.Answer(call, {});
  }
  life_.End(std::move(call), *id, std::move(death));
}

void ActorService::EndNamed(CallPtr call, const ActorId& id, proto::Death death) {
  const bool asked = call != nullptr;
  context_.pipeline.Run(
      std::move(call), {ActorLatch(id)},
      [this, id, death]() -> Outcome {
        const ActorEntry* entry = table_.Find(id);
        if (entry == nullptr || entry->info().detached()) return {};
        Outcome outcome;
        if (!entry->is_alive()) {  // Who freed its name need not have said why it ended.
          if (entry->info().death().message().empty()) {
            outcome.apply = [this, id, death] {
              table_.Find(id)->record.mutable_info()->mutable_death()->set_message(death.message());
            };
          }
          return outcome;
        }
        outcome.writes = {{Table::kActors, id.Binary(), std::nullopt}};
        outcome.apply = [this, id, death] {
          proto::ActorRecord record = table_.Find(id)->record;
          record.mutable_info()->set_state(proto::ActorInfo::DEAD);
          *record.mutable_info()->mutable_death() = death;
          PublishActor(context_.publisher, table_.Put(id, std::move(record)).info());
        };
        return outcome;
      },
      [this, id, death, asked] {
        if (!asked) unended_.emplace_back(id, death);
      });
}

void ActorService::OnRows(NodeNumber node,
                          const google::protobuf::RepeatedPtrField<proto::ActorRow>& rows) {
  for (const proto::ActorRow& row : rows) {
    const absl::StatusOr<ActorId> id = ActorId::FromHex(row.actor_id());
    if (!id.ok() || id->maker().node != node) continue;
    if (const ActorEntry* entry = table_.Find(*id); entry != nullptr) {
      if (entry->info().detached() && entry->is_alive()) continue;
      if (row.state() == "DEAD" && (entry->is_alive() || entry->info().death().message().empty())) {
        proto::Death death;
        death.set_message(row.death());
        EndNamed(nullptr, *id, std::move(death));
      }
    }
    // The bound is on what listings remember; what a row says of a known actor always counts.
    if (table_.rows().size() < kMaxRows || table_.rows().contains(*id))
      table_.PutRow(*id, row, context_.options.max_remembered);
  }
}

void ActorService::OnNodeDead(NodeNumber node) {
  proto::Death death;
  death.set_cause(proto::Death::NODE_DIED);
  death.set_message(absl::StrCat("node ", node, " died"));
  life_.OnNodeDead(node, death);
  for (const ActorId& id : table_.NamedOfNode(node)) EndNamed(nullptr, id, death);
  table_.EraseRowsOfNode(node);
}

void ActorService::OnProcessGone(ProcessId process) {
  proto::Death death;
  death.set_message(absl::StrCat("its creator, ", process.ToString(), ", ended"));
  for (const ActorId& id : table_.NamedOf(process)) EndNamed(nullptr, id, death);
  table_.EraseRowsOf(process);
}

void ActorService::OnJobEnded(JobNumber job) {
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  death.set_message(absl::StrCat("job ", job, " ended"));
  std::vector<ActorId> ended;
  for (const auto& [id, entry] : table_.all()) {
    if (entry.is_alive() && !entry.info().detached() && entry.info().job() == job)
      ended.push_back(id);
  }
  for (const ActorId& id : ended) EndNamed(nullptr, id, death);
}

bool ActorService::AddSnapshot(std::string_view key, proto::Snapshot* snapshot) const {
  if (!key.empty()) {
    const absl::StatusOr<ActorId> id = ActorId::FromBinary(key);
    if (!id.ok()) return false;
    if (const ActorEntry* entry = table_.Find(*id))
      *snapshot->add_items()->mutable_actor() = entry->info();
    return true;
  }
  size_t bytes = 0;
  for (const auto& [id, entry] : table_.all()) {
    bytes += entry.info().ByteSizeLong();
    if (bytes > kMaxReplyBytes) return false;
    *snapshot->add_items()->mutable_actor() = entry.info();
  }
  return true;
}

void ActorService::Tick() {
  for (auto& [id, death] : std::exchange(unended_, {})) EndNamed(nullptr, id, std::move(death));
  Trim();
  life_.Tick();
}

void ActorService::Trim() {
  if (table_.Surplus(context_.options.max_remembered).empty()) return;
  context_.pipeline.Run(nullptr, {"actors/trim"}, [this]() -> Outcome {
    Outcome outcome;
    std::vector<ActorId> surplus = table_.Surplus(context_.options.max_remembered);
    for (const ActorId& id : surplus)
      outcome.writes.push_back({Table::kActors, id.Binary(), std::nullopt});
    outcome.apply = [this, surplus = std::move(surplus)] {
      for (const ActorId& id : surplus) table_.Erase(id);
    };
    return outcome;
  });
}

}  // namespace sheaf
