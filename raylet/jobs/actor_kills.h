// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Ends actors for people: a tool names one, without a handle of it. Its creator ends it, whose name is
// in the actor's id; a detached one the GCS. Pure; one thread.
#pragma once

#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/node_tables.h"

namespace sheaf {

class ActorKills {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Transport& transport;
    GcsLink& gcs;
    const AttachedProcesses& processes;
  };
  explicit ActorKills(Deps deps) : deps_(deps) {}
  ActorKills(const ActorKills&) = delete;
  ActorKills& operator=(const ActorKills&) = delete;

  // Whether the kStateQuery of a process of this node asks for the end of an actor: KEY_VALUE with an
  // EndActor. The answer comes when the creator has been told, or the GCS has ended it; that an
  // actor is unknown, or dead already, is no error.
  bool Takes(ProcessId from, const Frame& frame);

 private:
  void TellCreator(const ActorId& actor, const proto::EndActor& end);
  void Answer(ProcessId tool, uint64_t request, const proto::GcsReply& reply);

  const Deps deps_;
};

}  // namespace sheaf
