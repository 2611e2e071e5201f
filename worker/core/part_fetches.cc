// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/part_fetches.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "object_store/store_client.h"

namespace sheaf {
namespace {

constexpr Nanos kAskAgain = kSecond;
// A raylet that is at it says so whenever it is asked again.
constexpr Nanos kSilenceLimit = 60 * kSecond;
// In vain, where the object was said to be. From the second on each waits for kAskAgain.
constexpr uint32_t kMostFailures = 30;

std::string NameOf(const ObjectEntry& object, uint64_t offset, uint64_t bytes) {
  return absl::StrCat("bytes ", offset, " to ", offset + bytes, " of the object ",
                      object.id.ToHex());
}

ObjectId StoredName(const ObjectEntry& object) {
  return object.extra && !object.extra->stored_as.is_nil() ? object.extra->stored_as : object.id;
}

}  // namespace

ObjectHandle PartFetches::Fetch(ObjectEntry& object, uint64_t offset, uint64_t bytes) {
  const ObjectId id = ObjectId::Make(self_, references_.NextSequence(), 1);
  ObjectEntry* const copy = references_.NewOwned(id);
  ObjectHandle handle(copy);
  references_.AddUse(*copy);
  references_.AddUse(object);
  Part part;
  part.copy = copy;
  part.of = &object;
  part.offset = offset;
  part.bytes = bytes;
  parts_.emplace(id, part);
  Pursue(id);
  return handle;
}

void PartFetches::Pursue(ObjectId id) {
  auto found = parts_.find(id);
  if (found == parts_.end()) return;
  ObjectEntry& object = *found->second.of;
  resolver_.Want(object);  // Which may make it ready, and end this or other parts.
  found = parts_.find(id);
  if (found == parts_.end()) return;
  Part& part = found->second;
  switch (object.state) {
    case ObjectState::kPending:
      Withdraw(part);
      SetAgain(id, part, clock_.Now() + kAskAgain);
      if (std::exchange(part.waits, true)) return;
      return references_.WhenReady(object, [this, id](ObjectEntry&) {
        const auto waiting = parts_.find(id);
        if (waiting == parts_.end()) return;
        waiting->second.waits = false;
        Pursue(id);
      });
    case ObjectState::kError:
      return Fail(id, object.extra->error);
    case ObjectState::kValue: {
      const std::string_view value = object.value;
      if (part.offset > value.size() || part.bytes > value.size() - part.offset)
        return OnFailed(id, part, absl::OutOfRangeError(""));
      references_.SetValue(*part.copy, value.substr(part.offset, part.bytes));
      return End(id);
    }
    case ObjectState::kStore:
      return Ask(id, part);
  }
}

void PartFetches::Ask(ObjectId id, Part& part) {
  const Nanos now = clock_.Now();
  if (!part.question.is_nil() && part.place != part.of->location) Withdraw(part);
  if (part.question.is_nil()) {
    part.question = ObjectId::Make(self_, references_.NextSequence(), 1);
    questions_.emplace(part.question, id);
    part.place = part.of->location;
    part.heard_at = now;
  }
  SetAgain(id, part, now + kAskAgain);
  Send(part, /*cancel=*/false);
}

void PartFetches::Send(const Part& part, bool cancel) {
  const PartWanted wanted{.id = part.question,
                          .of = StoredName(*part.of),
                          .hint = part.place,
                          .offset = part.offset,
                          .bytes = part.bytes,
                          .cancel = cancel ? 1U : 0U};
  transport_.To(RayletOf(self_.node)).Send(Lane::kControl, kStorePart, AsBytes(wanted));
}

// The raylet frees what it has of it by now.
void PartFetches::Withdraw(Part& part) {
  if (part.question.is_nil()) return;
  Send(part, /*cancel=*/true);
  questions_.erase(std::exchange(part.question, {}));
}

void PartFetches::SetAgain(ObjectId id, Part& part, Nanos at) {
  again_.erase({part.again_at, id});
  part.again_at = at;
  again_.emplace(at, id);
}

bool PartFetches::OnLocated(ObjectId name, const absl::StatusOr<ObjectLocation>& location) {
  const auto question = questions_.find(name);
  if (question == questions_.end()) return false;
  const ObjectId id = question->second;
  Part& part = parts_.at(id);
  if (absl::IsUnavailable(location.status())) {
    part.heard_at = clock_.Now();
  } else if (location.ok()) {
    questions_.erase(question);
    part.question = {};
    part.copy->more().stored_as = name;
    references_.SetStored(*part.copy, *location, part.bytes);
    End(id);
  } else {
    OnFailed(id, part, location.status());
  }
  return true;
}

void PartFetches::OnFailed(ObjectId id, Part& part, const absl::Status& why) {
  ObjectEntry& object = *part.of;
  const std::string name = NameOf(object, part.offset, part.bytes);
  if (absl::IsOutOfRange(why)) {
    return Fail(id, {ErrorKind::kInvalidArgument,
                     absl::StrCat(name, " do not exist: the object is shorter"),
                     {}});
  }
  const ErrorKind kind = StoreErrorKind(why);
  if (kind != ErrorKind::kObjectLost || ++part.failures > kMostFailures) {
    return Fail(id, {kind, absl::StrCat(name, " cannot be read now: ", why.message()), {}});
  }
  const ObjectLocation place = part.place;
  Withdraw(part);
  SetAgain(id, part, clock_.Now() + kAskAgain);
  // What is known of it may have changed meanwhile; then this is news of something past.
  if (object.state == ObjectState::kStore && object.location == place) {
    resolver_.OnNotThere(
        object, place.node != 0 ? place.node : self_.node,
        {ErrorKind::kObjectLost,
         absl::StrCat("the object ", object.id.ToHex(), " is lost: ", why.message()),
         {}});
  }
  const auto still = parts_.find(id);
  const bool at_once =
      still != parts_.end() && still->second.question.is_nil() && still->second.failures == 1;
  if (at_once) Pursue(id);
}

void PartFetches::Fail(ObjectId id, Error error) {
  references_.SetError(*parts_.at(id).copy, std::move(error));
  End(id);
}

void PartFetches::End(ObjectId id) {
  const auto found = parts_.find(id);
  if (found == parts_.end()) return;
  Withdraw(found->second);
  const Part part = found->second;
  again_.erase({part.again_at, id});
  parts_.erase(found);
  references_.DropUse(*part.copy);
  references_.DropUse(*part.of);
}

Nanos PartFetches::Tick() {
  const Nanos now = clock_.Now();
  std::vector<ObjectId> due;
  for (const auto& [at, id] : again_) {
    if (at > now) break;
    due.push_back(id);
  }
  for (const ObjectId id : due) {
    const auto found = parts_.find(id);
    if (found == parts_.end()) continue;
    const Part& part = found->second;
    if (part.copy->held_by_handles == 0 && part.copy->uses == 1) {
      End(id);  // Nobody else has it.
    } else if (!part.question.is_nil() && now - part.heard_at >= kSilenceLimit) {
      Fail(id, {ErrorKind::kTimeout,
                absl::StrCat("the raylet of this node has said nothing about ",
                             NameOf(*part.of, part.offset, part.bytes), " for ",
                             kSilenceLimit / kSecond, " s; read it again to go on waiting"),
                {}});
    } else {
      Pursue(id);
    }
  }
  return again_.empty() ? kForever : again_.begin()->first;
}

}  // namespace sheaf
