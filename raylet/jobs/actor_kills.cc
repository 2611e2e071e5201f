// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/jobs/actor_kills.h"

#include <string>
#include <utility>

#include "base/error_kind.h"
#include "proto/worker.pb.h"

namespace sheaf {

bool ActorKills::Takes(ProcessId from, const Frame& frame) {
  proto::StateQuery query;
  proto::GcsRequest request;
  if (!query.ParseFromArray(frame.body.data(), static_cast<int>(frame.body.size())) ||
      query.what() != proto::StateQuery::KEY_VALUE || !request.ParseFromString(query.key_value()) ||
      !request.has_end_actor()) {
    return false;
  }
  const absl::StatusOr<ActorId> actor = ActorId::FromBinary(request.end_actor().actor_id());
  if (!actor.ok()) {
    proto::GcsReply wrong;
    wrong.set_error(static_cast<uint32_t>(ErrorKind::kInvalidArgument));
    wrong.set_message("the id of an actor has 16 bytes");
    Answer(from, query.request(), wrong);
    return true;
  }
  TellCreator(*actor, request.end_actor());
  proto::GcsRequest lookup;
  lookup.mutable_lookup_actor()->set_actor_id(actor->Binary());
  // The name of another is free when its creator says so.
  deps_.gcs.Command(lookup, [this, from, number = query.request(),
                             end = std::move(request)](const proto::GcsReply& found) {
    if (!found.actor().detached()) {
      proto::GcsReply told;
      told.set_client(found.client());  // An answer without a byte would be none.
      return Answer(from, number, told);
    }
    deps_.gcs.Command(
        end, [this, from, number](const proto::GcsReply& reply) { Answer(from, number, reply); });
  });
  return true;
}

// Who is not the creator, as that of a detached actor is not, knows nothing of it.
void ActorKills::TellCreator(const ActorId& actor, const proto::EndActor& end) {
  const ProcessId creator = actor.maker();
  if (creator.process == 0 || (creator.node == deps_.node && !deps_.processes.contains(creator))) {
    return;
  }
  proto::ActorControl control;
  control.set_actor_id(actor.Binary());
  control.set_kill(true);
  control.set_no_restart(!end.restart());
  SendMessage(deps_.transport.To(creator), FrameKind::kActorControl, control);
}

void ActorKills::Answer(ProcessId tool, uint64_t request, const proto::GcsReply& reply) {
  if (!deps_.processes.contains(tool)) return;  // It has gone meanwhile.
  proto::StateAnswer answer;
  answer.set_request(request);
  answer.set_key_value(reply.SerializeAsString());
  SendMessage(deps_.transport.To(tool), FrameKind::kStateAnswer, answer);
}

}  // namespace sheaf
