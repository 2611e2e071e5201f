// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Frames between owners, workers and borrowers: replies, stream items, reference counts and answers
// to one that has calls under way; and pushes, as a worker parses them.
#include <deque>
#include <map>

#include "base/fake_clock.h"
#include "object_store/messages.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/executor/execution.h"
#include "worker/executor/fake_execution_host.h"
#include "worker/owner_state.h"
#include "worker/wire.h"

using namespace sheaf;

namespace {

constexpr ProcessId kSelf{1, 7};
constexpr ProcessId kWorker{1, 8};
constexpr ProcessId kRaylet{1, 0};

// Remembers the last push, forgets the rest.
class LastPush final : public Transport {
 public:
  Channel& To(ProcessId) override { return channel_; }
  void Forget(ProcessId) override {}
  std::string push;

 private:
  class Sink final : public Channel {
   public:
    explicit Sink(LastPush& transport) : transport_(transport) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      if (kind == FrameKind::kPushTask) transport_.push = std::string(head) + std::string(tail);
    }
    size_t queued_bytes() const override { return 0; }

   private:
    LastPush& transport_;
  };
  Sink channel_{*this};
};

class NoStore final : public LocalStore {
 public:
  void Free(ObjectId, ObjectLocation) override {}
  ObjectLocation Promote(ObjectId, std::string_view, std::span<const ObjectId>) override {
    return {};
  }
  bool Has(const ObjectLocation&) override { return false; }
};

// An owner with two calls pushed, one of them a stream.
struct Owner {
  FakeClock clock;
  LastPush transport;
  NoStore store;
  std::deque<TemplateRecord> templates;
  OwnerState owner{kSelf, clock, transport, store, [](std::span<const ObjectId>) {}};
  std::vector<ObjectHandle> handles;
  std::vector<PushTaskHead> pushes;

  Owner() {
    for (const bool streaming : {false, true}) {
      TemplateRecord& record = templates.emplace_back();
      record.spec.set_number(static_cast<uint32_t>(templates.size()));
      record.spec.set_name("f");
      record.spec.set_max_retries(1);
      record.spec.set_num_returns(streaming ? 0 : 2);
      record.spec.set_streaming(streaming);
      (*record.spec.mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] = 10'000;
      TaskRecord* task = owner.tasks.Add(record, {}, nullptr, {});
      handles.emplace_back(task->first_return);
      owner.submitter.Submit(*task);
    }
    for (uint64_t lease = 1; lease <= 2; ++lease) {
      proto::LeaseGrant grant;
      grant.set_key(1);
      grant.set_lease(lease);
      grant.set_worker(ProcessId{1, static_cast<uint32_t>(7 + lease)}.packed());
      owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
      PushTaskHead head{};
      if (transport.push.size() >= sizeof head)
        std::memcpy(&head, transport.push.data(), sizeof head);
      pushes.push_back(head);
    }
  }
};

std::string ReplySeed(const PushTaskHead& push, ReturnKind kind, ReplyStatus status) {
  TaskReplyHead head{};
  head.task_sequence_bits = push.task_sequence_bits;
  head.cookie = push.cookie;
  head.attempt = push.attempt;
  head.return_count = 2;
  head.status = status;
  std::string body(AsBytes(head));
  WireWriter out(body);
  for (int i = 0; i < 2; ++i) {
    ReturnHead result{};
    result.kind = kind;
    result.bytes = kind == ReturnKind::kStore ? 0 : 12;
    result.nested_count = 1;
    out.Struct(result);
    if (kind != ReturnKind::kStore) out.Bytes("twelve bytes");
    out.Struct(NestedReference{ObjectId::Make({1, 9}, 4, 1), {}});
  }
  return body;
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  Owner owner;
  std::vector<std::string> seeds;
  for (const PushTaskHead& push : owner.pushes) {
    for (const ReturnKind kind : {ReturnKind::kValue, ReturnKind::kStore, ReturnKind::kError}) {
      for (const ReplyStatus status :
           {ReplyStatus::kDone, ReplyStatus::kFailed, ReplyStatus::kFailedRetriable}) {
        seeds.push_back(
            FrameOf(0, static_cast<uint8_t>(FrameKind::kTaskReply), ReplySeed(push, kind, status)));
      }
    }
    StreamItemHead item{};
    item.task_sequence_bits = push.task_sequence_bits;
    item.cookie = push.cookie;
    seeds.push_back(FrameOf(0, static_cast<uint8_t>(FrameKind::kStreamItem),
                            std::string(AsBytes(item)) + std::string(64, '\0')));
  }
  for (const FrameKind kind :
       {FrameKind::kTaskReturned, FrameKind::kTransitDone, FrameKind::kObjectQuery,
        FrameKind::kObjectAnswer, FrameKind::kRefsReported, FrameKind::kNodeRefs}) {
    seeds.push_back(FrameOf(1, static_cast<uint8_t>(kind), std::string(96, '\1')));
  }
  PushTaskHead head{};
  head.argument_bytes = 24;
  head.nested_count = 1;
  std::string push(AsBytes(head));
  WireWriter out(push);
  out.Struct(ArgumentHead{ArgumentKind::kValue, 12});
  out.Bytes("twelve bytes");
  out.Struct(NestedReference{ObjectId::Make({1, 9}, 4, 1), {}});
  seeds.push_back(FrameOf(2, 0, push));
  head.flags = kStreamResumes;
  std::memcpy(push.data(), &head, sizeof head);
  out.Struct(StreamResume{4, 2, 1});
  out.Struct(uint64_t{1});
  seeds.push_back(FrameOf(2, 0, push));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FakeExecutionHost host;
  Owner owner;
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const uint8_t from = input.Byte();
    const auto kind = FrameKind{input.Byte()};
    const std::string body = input.Bytes(input.Short());
    if (from % 3 == 2) {
      CallExecution call(host);
      if (call.Begin(kWorker, std::make_shared<proto::TaskTemplate>(), body))
        call.Yield("an item", {}).IgnoreError();
    } else {
      owner.owner.OnFrame(from % 3 == 0 ? kWorker : kRaylet, {kind, body});
    }
  }
  owner.owner.Tick();
  proto::Death death;
  death.set_cause(proto::Death::SIGNALLED);
  owner.owner.OnProcessDied(kWorker, death, 1);
  owner.owner.OnNodeGone(2);
  return 0;
}
