// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An OwnerState whose frames are recorded and whose peers the test plays by hand. For tests only.
#pragma once

#include "worker/owner_state.h"

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fake_clock.h"
#include "base/testing/recording_transport_for_test.h"
#include "object_store/messages.h"
#include "worker/wire.h"

namespace sheaf {

inline constexpr ProcessId kSelf{1, 7};
inline constexpr ProcessId kWorker{1, 8};
inline constexpr ProcessId kRaylet{1, 0};

using Sent = SentFrame;

class MapStore final : public LocalStore {
 public:
  void Free(ObjectId id, ObjectLocation) override { freed.push_back(id); }
  ObjectLocation Promote(ObjectId, std::string_view, std::span<const ObjectId>) override {
    return room ? ObjectLocation{1, next++, 1, 0} : ObjectLocation{};
  }
  bool Has(const ObjectLocation& location) override {
    return location.node == kSelf.node && location.known() && !spilled.contains(location.slot);
  }
  std::vector<ObjectId> freed;
  std::set<uint32_t> spilled;  // Slots of this node that are empty.
  uint32_t next = 0;
  bool room = true;
};

struct Fixture {
  explicit Fixture(const BackPressure& limits = {}) : limits(limits) {}

  FakeClock clock;
  RecordingTransport transport;
  MapStore store;
  std::vector<ObjectId> looked_up;
  BackPressure limits;
  OwnerState owner{kSelf,
                   clock,
                   transport,
                   store,
                   [this](std::span<const ObjectId> ids) {
                     looked_up.insert(looked_up.end(), ids.begin(), ids.end());
                   },
                   limits};
  std::deque<TemplateRecord> templates;

  const TemplateRecord& Template(int max_retries = 3) {
    TemplateRecord& record = templates.emplace_back();
    record.spec.set_number(static_cast<uint32_t>(templates.size()));
    record.spec.set_name("square");
    record.spec.set_max_retries(max_retries);
    record.spec.set_num_returns(1);
    (*record.spec.mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] = 10'000;
    return record;
  }
  ObjectHandle Submit(const TemplateRecord& spec,
                      std::unique_ptr<TaskReferences> references = nullptr) {
    TaskRecord* task = owner.tasks.Add(spec, {}, std::move(references), {});
    ObjectHandle handle(task->first_return);
    owner.submitter.Submit(*task);
    return handle;
  }
  void Grant(uint64_t lease = 1, ProcessId worker = kWorker) {
    proto::LeaseGrant grant;
    grant.set_key(1);
    grant.set_lease(lease);
    grant.set_worker(worker.packed());
    owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
  }
  PushTaskHead TakePush() {
    const Sent frame = transport.Take(FrameKind::kPushTask);
    PushTaskHead head;
    std::memcpy(&head, frame.body.data(), sizeof head);
    return head;
  }
  void Reply(const PushTaskHead& push, std::string_view value,
             ReplyStatus status = ReplyStatus::kDone, uint64_t run_ns = 1000,
             ProcessId from = kWorker) {
    TaskReplyHead head{};
    head.task_sequence_bits = push.task_sequence_bits;
    head.cookie = push.cookie;
    head.attempt = push.attempt;
    head.run_ns = run_ns;
    head.status = status;
    std::string body(AsBytes(head));
    ReturnHead result{};
    result.kind = status == ReplyStatus::kDone ? ReturnKind::kValue : ReturnKind::kError;
    const std::string bytes = status == ReplyStatus::kDone
                                  ? std::string(value)
                                  : EncodeError({ErrorKind::kTaskFailed, std::string(value), {}});
    result.bytes = static_cast<uint32_t>(bytes.size());
    WireWriter out(body);
    out.Struct(result);
    out.Bytes(bytes);
    owner.OnFrame(from, {FrameKind::kTaskReply, body});
  }
  void Die(ProcessId process, uint64_t started) {
    proto::Death death;
    death.set_cause(proto::Death::SIGNALLED);
    death.set_code(9);
    owner.OnProcessDied(process, death, started);
  }
};

}  // namespace sheaf
