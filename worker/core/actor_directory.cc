// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/actor_directory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/describe_death.h"
#include "worker/owner/argument_codec.h"
#include "worker/wire.h"

namespace sheaf {

ActorDirectory::ActorDirectory(OwnerState& owner, GcsCalls& gcs) : owner_(owner), gcs_(gcs) {
  owner_.actors.set_ask_gcs([this](ActorId actor) { AskAbout(actor); });
  owner_.created_actors.set_on_named_end(
      [this](ActorId actor) { TellEnd(actor, proto::Death::LEFT, ""); });
}

ObjectHandle ActorDirectory::HandleOf(const proto::ActorInfo& actor) {
  return HandleOf(ActorId::FromBinary(actor.actor_id()).value_or(ActorId()), actor.detached());
}

ObjectHandle ActorDirectory::HandleOf(ActorId actor, bool detached) {
  const ObjectId creation =
      detached ? DetachedActorHandle(actor) : ReturnOf({actor.maker_bits, actor.sequence_bits}, 0);
  return ObjectHandle(owner_.references.Incoming({creation, {}}));
}

proto::GcsRequest ActorDirectory::Named(ActorId actor, const TemplateRecord& creation,
                                        std::string_view name_space, JobNumber job) {
  const proto::ActorOptions& options = creation.spec.actor();
  proto::GcsRequest request;
  proto::RegisterActor& named = *request.mutable_register_actor();
  named.set_actor_id(actor.Binary());
  named.set_name(options.name());
  named.set_name_space(std::string(name_space));
  named.set_job(job);
  named.set_class_name(creation.spec.name());
  named.set_max_restarts(options.max_restarts());
  named.set_get_if_exists(options.get_if_exists());
  named.set_handle(creation.wire);
  return request;
}

proto::GcsRequest ActorDirectory::Detached(const TemplateRecord& creation,
                                           const ArgumentList& arguments,
                                           std::string_view name_space, JobNumber job) {
  const ActorId id = ActorId::Make(owner_.self, owner_.references.NextSequence());
  const std::span<const ObjectHandle> nested = ArgumentCodec::Nested(arguments);
  PushTaskHead head{};
  head.task_sequence_bits = id.sequence_bits;
  head.flags = kTemplateInline;
  head.nested_count = static_cast<uint32_t>(nested.size());
  head.argument_bytes = static_cast<uint32_t>(arguments.bytes());
  std::string push(AsBytes(head));
  push.append(ArgumentCodec::Bytes(arguments));
  for (const ObjectHandle& inner : nested)
    push.append(AsBytes(owner_.references.Outgoing(*inner.entry())));
  push.append(creation.wire);
  proto::GcsRequest request = Named(id, creation, name_space, job);
  proto::RegisterActor& detached = *request.mutable_register_actor();
  detached.set_detached(true);
  detached.set_creation(std::move(push));
  *detached.mutable_lease() = creation.spec.lease();
  detached.mutable_lease()->set_actor(true);
  detached.mutable_lease()->set_actor_id(id.Binary());
  return request;
}

void ActorDirectory::KeepArguments(ActorId actor, std::span<const ObjectHandle> nested) {
  if (!nested.empty()) detached_arguments_[actor].assign(nested.begin(), nested.end());
}

void ActorDirectory::End(ActorId actor, bool no_restart, const char* reason) {
  if (owner_.created_actors.Manages(actor)) {
    owner_.created_actors.Kill(actor, no_restart, reason);
  } else if (actor.maker() != owner_.self) {
    proto::ActorControl control;
    control.set_actor_id(actor.Binary());
    control.set_kill(true);
    control.set_no_restart(no_restart);
    SendMessage(owner_.transport.To(actor.maker()), FrameKind::kActorControl, control);
  }
}

void ActorDirectory::Leave(ActorId actor, bool detached) {
  if (detached) {
    proto::GcsRequest request;
    request.mutable_end_actor()->set_actor_id(actor.Binary());
    request.mutable_end_actor()->set_leaves(true);
    return gcs_.Tell(std::move(request));
  }
  proto::ActorControl control;
  control.set_actor_id(actor.Binary());
  control.set_leaves(true);
  SendMessage(owner_.transport.To(actor.maker()), FrameKind::kActorControl, control);
}

proto::GcsRequest ActorDirectory::EndOfDetached(ActorId actor, bool no_restart,
                                                const char* reason) {
  proto::GcsRequest request;
  proto::EndActor& end = *request.mutable_end_actor();
  end.set_actor_id(actor.Binary());
  end.set_restart(!no_restart);
  end.mutable_death()->set_cause(proto::Death::KILLED);
  end.mutable_death()->set_message(reason);
  return request;
}

void ActorDirectory::NoteKilled(const ObjectHandle& actor) {
  owner_.actors.RefuseFromNowOn(
      owner_.actors.ClientOf(*actor.entry()),
      {ErrorKind::kActorDied,
       absl::StrCat("the actor (", ActorOf(actor).ToHex(), ") was ended: kill was called"),
       {}});
}

void ActorDirectory::Withdraw(ActorId actor) {
  TellEnd(actor, proto::Death::KILLED, "its creation was given up");
}

void ActorDirectory::TellEnd(ActorId actor, proto::Death::Cause cause, const char* reason) {
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(actor.Binary());
  request.mutable_end_actor()->mutable_death()->set_cause(cause);
  request.mutable_end_actor()->mutable_death()->set_message(reason);
  gcs_.Tell(std::move(request));
}

void ActorDirectory::AskAbout(ActorId actor) {
  if (lookups_.contains(actor)) return;
  proto::GcsRequest request;
  request.mutable_lookup_actor()->set_actor_id(actor.Binary());
  lookups_[actor] = gcs_.Begin(std::move(request));
}

void ActorDirectory::TakeAnswers() {
  std::vector<proto::ActorAnswer> answers;  // Who hears one may ask about another.
  absl::erase_if(lookups_, [&](const auto& lookup) {
    proto::GcsReply reply;
    if (!gcs_.Take(lookup.second, &reply)) return false;
    answers.push_back(AnswerOf(lookup.first, reply));
    return true;
  });
  for (const proto::ActorAnswer& answer : answers) owner_.actors.OnAnswer(answer);
}

// What the creator of the actor would say.
proto::ActorAnswer ActorDirectory::AnswerOf(ActorId actor, const proto::GcsReply& reply) {
  const proto::ActorInfo& info = reply.actor();
  proto::ActorAnswer answer;
  answer.set_actor_id(actor.Binary());
  answer.set_incarnation(info.incarnation());
  proto::TaskTemplate creation;
  if (creation.ParseFromString(info.handle())) {
    answer.set_max_task_retries(creation.actor().max_task_retries());
    answer.set_max_pending_calls(creation.actor().max_pending_calls());
    answer.set_out_of_order(creation.actor().out_of_order());
  }
  if (reply.error() != 0 || info.state() == proto::ActorInfo::DEAD) {
    answer.set_state(proto::ActorAnswer::DEAD);
    answer.set_incarnation(UINT32_MAX);
    detached_arguments_.erase(actor);
    answer.set_message(reply.error() != 0
                           ? reply.message()
                           : absl::StrCat("the actor ", info.name(), " is dead: its process ",
                                          DescribeDeath(info.death())));
  } else if (info.state() == proto::ActorInfo::ALIVE) {
    answer.set_state(proto::ActorAnswer::ALIVE);
    answer.set_process(info.process());
  } else {
    answer.set_state(info.state() == proto::ActorInfo::RESTARTING ? proto::ActorAnswer::RESTARTING
                                                                  : proto::ActorAnswer::PENDING);
  }
  return answer;
}

}  // namespace sheaf
