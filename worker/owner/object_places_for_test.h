// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An OwnerState with objects on other nodes. For tests only.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/owner_state_for_test.h"

namespace sheaf {

inline constexpr ProcessId kFar{2, 8};  // A worker of another node.
inline constexpr ProcessId kFarRaylet{2, 0};
inline constexpr ProcessId kThirdRaylet{3, 0};
inline constexpr ObjectLocation kThere{2, 5, 1, 0};
inline constexpr ObjectLocation kThird{3, 6, 2, 0};
inline constexpr ObjectLocation kHere{1, 4, 1, 0};

struct Places : Fixture {
  void ReplyStored(const PushTaskHead& push, ObjectLocation location, uint64_t size = 1 << 20,
                   ProcessId from = kFar, bool keeps_arguments = false) {
    TaskReplyHead head{};
    head.keeps_arguments = keeps_arguments;
    head.task_sequence_bits = push.task_sequence_bits;
    head.cookie = push.cookie;
    head.attempt = push.attempt;
    head.return_count = 1;
    ReturnHead result{};
    result.kind = ReturnKind::kStore;
    result.location = location;
    result.size = size;
    std::string body(AsBytes(head));
    body.append(AsBytes(result));
    owner.OnFrame(from, {FrameKind::kTaskReply, body});
  }
  // A result that a worker of node 2 has left in its store.
  ObjectHandle Result(int max_retries = 3) {
    ObjectHandle handle = Submit(Template(max_retries));
    if (!granted) Grant(1, kFar);
    granted = true;
    ReplyStored(TakePush(), kThere);
    REQUIRE(ObjectState{handle.entry()->state} == ObjectState::kStore);
    owner.references.List(*handle.entry());
    return handle;
  }
  // Some value in this process's memory.
  ObjectHandle PutHere(std::string_view bytes, std::vector<ObjectEntry*> nested = {}) {
    ObjectEntry* entry =
        owner.references.NewOwned(ObjectId::Make(kSelf, owner.references.NextSequence(), 1));
    ObjectHandle handle(entry);
    for (ObjectEntry* inner : nested) owner.references.AddUse(*inner);
    owner.references.SetValue(*entry, bytes, std::move(nested));
    return handle;
  }
  // A call with these as its arguments.
  ObjectHandle Call(const TemplateRecord& spec, const std::vector<ObjectHandle>& arguments,
                    const std::vector<ObjectHandle>& inside = {}) {
    auto references = std::make_unique<TaskReferences>();
    InlineBytes heads;
    for (const ObjectHandle& argument : arguments) {
      owner.references.AddUse(*argument.entry());
      references->arguments.push_back({argument.entry(), static_cast<uint32_t>(heads.size())});
      heads.append(AsBytes(ArgumentHead{ArgumentKind::kValue, 0}));
    }
    for (const ObjectHandle& inner : inside) {
      owner.references.AddUse(*inner.entry());
      references->nested.push_back(inner.entry());
    }
    TaskRecord* task = owner.tasks.Add(spec, std::move(heads), std::move(references), {});
    ObjectHandle result(task->first_return);
    owner.submitter.Submit(*task);
    return result;
  }
  // The same, which a worker of node 2 has ended, with its result in the store there.
  ObjectHandle Step(const TemplateRecord& spec, const std::vector<ObjectHandle>& arguments,
                    const std::vector<ObjectHandle>& inside = {}) {
    ObjectHandle result = Call(spec, arguments, inside);
    if (!granted) Grant(1, kFar);
    granted = true;
    ReplyStored(TakePush(), kThere);
    return result;
  }
  void Collect() {
    while (owner.references.CollectDropped()) {
    }
  }
  ObjectHandle PutThere() {
    ObjectEntry* entry =
        owner.references.NewOwned(ObjectId::Make(kSelf, owner.references.NextSequence(), 1));
    ObjectHandle handle(entry);
    owner.references.SetStored(*entry, kThere, 1 << 20);
    owner.references.List(*entry);
    return handle;
  }
  void Copied(ProcessId from, ObjectId id, ObjectLocation location) {
    owner.OnFrame(from, {kStoreCopied, AsBytes(ObjectName{id, location})});
  }
  // Where copies were freed on other nodes.
  std::vector<std::pair<ProcessId, ObjectName>> TakeFrees() {
    std::vector<std::pair<ProcessId, ObjectName>> out;
    while (transport.Count(kStoreFree) != 0) {
      const Sent frame = transport.Take(kStoreFree);
      for (const ObjectName& name : FrameItems<ObjectName>(frame.body))
        out.emplace_back(frame.to, name);
    }
    return out;
  }
  std::pair<ProcessId, FetchWanted> TakeFetch() {
    const Sent frame = transport.Take(kStoreFetch);
    FetchWanted wanted;
    std::memcpy(&wanted, frame.body.data(), sizeof wanted);
    return {frame.to, wanted};
  }
  void Query(ProcessId from, ObjectId id, bool lost) {
    std::string body(AsBytes(ObjectQueryHead{1, lost}));
    body.append(AsBytes(id));
    owner.OnFrame(from, {FrameKind::kObjectQuery, body});
  }
  ReturnHead TakeAnswer() {
    const Sent frame = transport.Take(FrameKind::kObjectAnswer);
    ReturnHead head;
    std::memcpy(&head, frame.body.data() + sizeof(ObjectAnswerHead), sizeof head);
    return head;
  }
  bool granted = false;
};

}  // namespace sheaf
