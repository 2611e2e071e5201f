// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/argument_admission.h"

#include <vector>

#include "object_store/messages.h"

namespace sheaf {
namespace {

// Who waits so long for room in the store does not only wait for the disk.
constexpr Nanos kShortAfter = kSecond;

}  // namespace

ArgumentAdmission::ArgumentAdmission(Clock& clock, Transport& transport, const StoreServer& store)
    : clock_(clock), transport_(transport), store_(store), ledger_(store.Stats().capacity_bytes) {}

absl::Status ArgumentAdmission::OnHold(ProcessId from, const Frame& frame) {
  const auto* mapped = FrameHead<HoldHead>(frame.body);
  if (mapped == nullptr) return absl::InvalidArgumentError("a call's arguments without their head");
  const HoldHead head = *mapped;  // Once: the sender can still write there.
  const ArgumentLedger::Call call{from, head.ticket};
  switch (head.step) {
    case HoldStep::kAsk:
      break;
    case HoldStep::kSuspend:
    case HoldStep::kResume:
      ledger_.SetSuspended(call, head.step == HoldStep::kSuspend);
      return absl::OkStatus();
    case HoldStep::kEnd:
      ledger_.End(call, clock_.Now());
      return absl::OkStatus();
    default:
      return absl::OkStatus();  // Of a newer peer.
  }
  const auto items = FrameItems<HeldObject>(frame.body.substr(sizeof head));
  std::vector<HeldObject> objects(items.begin(), items.end());
  if (objects.size() < head.count) return absl::InvalidArgumentError("arguments that are cut off");
  objects.resize(head.count);
  for (HeldObject& object : objects) {
    if (const auto here = store_.Describe(object.id); here.ok()) object.bytes = here->size_bytes;
  }
  if (!ledger_.Ask(call, ProcessId::Unpack(head.caller), objects, clock_.Now()))
    return absl::InvalidArgumentError("arguments of more calls than a process can run");
  return absl::OkStatus();
}

void ArgumentAdmission::OnProcessGone(ProcessId process) { ledger_.Forget(process, clock_.Now()); }

void ArgumentAdmission::Settle() {
  if (!ledger_.has_waiting()) return;
  const Nanos now = clock_.Now();
  const Nanos short_since = store_.ShortSince();
  const bool is_short = short_since != kForever && now - short_since >= kShortAfter;
  for (const auto& [process, ticket] : ledger_.Admit(now, is_short))
    transport_.To(process).Send(Lane::kControl, kStoreHeld, AsBytes(HoldAdmitted{ticket}));
}

}  // namespace sheaf
