// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who has a call: the lease that it was pushed to, the actor whose method it is, or the actor that
// it creates. A pointer that knows its type, in the size of one: millions of calls have it.
#pragma once

#include <cstdint>

namespace sheaf {

struct ActorClient;   // worker/owner/actor_submitter.h
struct CreatedActor;  // worker/owner/created_actors.h
struct OwnedLease;    // worker/owner/task_submitter.h

class TaskTarget {
 public:
  TaskTarget() = default;  // Nobody has it.
  TaskTarget(OwnedLease* lease) : bits_(Encode(lease, kLease)) {}
  TaskTarget(ActorClient* actor) : bits_(Encode(actor, kActor)) {}
  TaskTarget(CreatedActor* created) : bits_(Encode(created, kCreated)) {}

  // As std::get_if: nullptr when somebody of another type has it, or nobody.
  OwnedLease* lease() const { return Decode<OwnedLease>(kLease); }
  ActorClient* actor() const { return Decode<ActorClient>(kActor); }
  CreatedActor* created() const { return Decode<CreatedActor>(kCreated); }

 private:
  // In the bits of the address that alignment leaves free.
  enum Type : uintptr_t { kNobody, kLease, kActor, kCreated, kTypeMask = 3 };

  static uintptr_t Encode(void* holder, Type type) {
    return reinterpret_cast<uintptr_t>(holder) | type;
  }
  template <class Holder>
  Holder* Decode(Type type) const {
    return (bits_ & kTypeMask) == type ? reinterpret_cast<Holder*>(bits_ - type) : nullptr;
  }

  uintptr_t bits_ = kNobody;
};
static_assert(sizeof(TaskTarget) == sizeof(void*));

}  // namespace sheaf
