// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this process and the GCS say to each other about actors: who registers under which name,
// that an actor has ended, and where a detached one is, which only the GCS knows. Guarded by the
// runtime's lock.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"
#include "worker/core/gcs_calls.h"
#include "worker/owner_state.h"
#include "worker/runtime.h"

namespace sheaf {

class ActorDirectory {
 public:
  // Answers the questions of `owner` for detached actors, and tells the GCS of the ends of named
  // ones. Both outlive it.
  ActorDirectory(OwnerState& owner, GcsCalls& gcs);

  // A handle made from what the GCS says, and one of an actor whose id is known.
  ObjectHandle HandleOf(const proto::ActorInfo& actor);
  ObjectHandle HandleOf(ActorId actor, bool detached);

  // The registration of an actor that this process looks after, for its name.
  static proto::GcsRequest Named(ActorId actor, const TemplateRecord& creation,
                                 std::string_view name_space, JobNumber job);
  // The registration of a new detached actor, whose id is in it: the GCS keeps the creation task
  // and has it started wherever there is room. All of `arguments` are values.
  proto::GcsRequest Detached(const TemplateRecord& creation, const ArgumentList& arguments,
                             std::string_view name_space, JobNumber job);
  // References inside what the constructor of a detached actor was given, for its restarts: held
  // while this process lives, or until it hears that the actor is dead.
  void KeepArguments(ActorId actor, std::span<const ObjectHandle> nested);

  // Ends an actor that is not detached: here, or at its creator.
  void End(ActorId actor, bool no_restart, const char* reason);
  // This process is an actor, and will end: for good, even if it dies before.
  void Leave(ActorId actor, bool detached);
  // What ends a detached one, said to the GCS.
  static proto::GcsRequest EndOfDetached(ActorId actor, bool no_restart, const char* reason);
  // Kill was called here, for good: from now on calls that this process makes of it end in that.
  void NoteKilled(const ObjectHandle& actor);
  // Nobody waited for the answer to the actor's registration, which may still be heard: its name
  // would stay taken. What is said now comes behind it.
  void Withdraw(ActorId actor);

  // Answers to the questions of `owner`; to be called after frames came.
  bool awaits_answers() const { return !lookups_.empty(); }
  void TakeAnswers();

 private:
  void AskAbout(ActorId actor);
  void TellEnd(ActorId actor, proto::Death::Cause cause, const char* reason);
  proto::ActorAnswer AnswerOf(ActorId actor, const proto::GcsReply& reply);

  OwnerState& owner_;
  GcsCalls& gcs_;
  absl::btree_map<ActorId, uint64_t> lookups_;  // At the GCS, under way.
  absl::flat_hash_map<ActorId, std::vector<ObjectHandle>> detached_arguments_;
};

}  // namespace sheaf
