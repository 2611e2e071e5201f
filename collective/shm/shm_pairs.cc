// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_pairs.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

Waiting WaitingFor(const Operation& operation, uint64_t sequence, bool interruptible) {
  return {operation, sequence, Deadline(MonotonicNow(), operation.timeout), interruptible};
}

}  // namespace

ShmSender::ShmSender(ShmGroup& group, int receiver)
    : group_(group),
      receiver_(receiver),
      record_(group.own().sends[receiver]),
      answer_(group.page(receiver)->receives[group.rank()]) {
  line_.bell = &group.own().send_bells[receiver];
}

absl::Status ShmSender::Run(const Operation& operation, bool interruptible) {
  const uint64_t message = ++sequence_;
  const Waiting waiting = WaitingFor(operation, message, interruptible);
  Bell& bell = group_.page(receiver_)->receive_bells[group_.rank()];
  const auto finished = [&](uint64_t value) {
    return group_.Await(line_, waiting, receiver_,
                        [&] { return answer_.finished.load(std::memory_order_acquire) >= value; });
  };
  SHEAF_RETURN_IF_ERROR(finished(message - 1));
  const size_t bytes = operation.count * SizeOf(operation.type);
  record_.count = operation.count;
  record_.type = static_cast<uint8_t>(operation.type);
  record_.kind = static_cast<uint8_t>(operation.kind);
  record_.input = group_.OffsetOf(operation.input, bytes);
  record_.sequence.store(message, std::memory_order_release);
  RingBell(bell, Lane::kControl);
  if (record_.input != kPrivate) return finished(message);
  const std::byte* const from = static_cast<const std::byte*>(operation.input);
  if (!reserved_ && bytes > 0) {
    SHEAF_RETURN_IF_ERROR(
        group_.Reserve(kPairOffset + static_cast<size_t>(receiver_) * kPairSlots * kPairSlotBytes,
                       kPairSlots * kPairSlotBytes));
    reserved_ = true;
  }
  for (size_t done = 0; done < bytes; done += kPairSlotBytes) {
    if (chunks_ >= kPairSlots) {
      const uint64_t taken = chunks_ + 1 - kPairSlots;
      SHEAF_RETURN_IF_ERROR(group_.Await(line_, waiting, receiver_, [&] {
        return answer_.taken.load(std::memory_order_acquire) >= taken;
      }));
    }
    std::memcpy(group_.pair_slot(group_.rank(), receiver_, chunks_), from + done,
                std::min(kPairSlotBytes, bytes - done));
    record_.staged.store(++chunks_, std::memory_order_release);
    RingBell(bell, Lane::kControl);
  }
  return absl::OkStatus();
}

ShmReceiver::ShmReceiver(ShmGroup& group, int sender)
    : group_(group),
      sender_(sender),
      record_(group.page(sender)->sends[group.rank()]),
      answer_(group.own().receives[sender]) {
  line_.bell = &group.own().receive_bells[sender];
}

absl::Status ShmReceiver::Run(const Operation& operation, bool interruptible) {
  const uint64_t message = ++sequence_;
  const Waiting waiting = WaitingFor(operation, message, interruptible);
  Bell& bell = group_.page(sender_)->send_bells[group_.rank()];
  SHEAF_RETURN_IF_ERROR(group_.Await(line_, waiting, sender_, [&] {
    return record_.sequence.load(std::memory_order_acquire) >= message;
  }));
  if (record_.count != operation.count || record_.type != static_cast<uint8_t>(operation.type)) {
    return group_.Fail(
        absl::StatusCode::kInvalidArgument, sender_,
        absl::StrCat("rank ", sender_, " sent ", NameOf(static_cast<DataType>(record_.type)), " x ",
                     record_.count, " where rank ", group_.rank(), " called ",
                     DescribeCall(operation, message)));
  }
  const size_t bytes = operation.count * SizeOf(operation.type);
  std::byte* const to = static_cast<std::byte*>(operation.output);
  if (record_.input != kPrivate) {
    if (record_.input > group_.arena_bytes() || bytes > group_.arena_bytes() - record_.input) {
      return group_.Fail(absl::StatusCode::kInternal, sender_,
                         absl::StrCat("rank ", sender_, " named an array outside of its arena"));
    }
    if (bytes != 0) std::memcpy(to, group_.arena(sender_) + record_.input, bytes);
  } else {
    for (size_t done = 0; done < bytes; done += kPairSlotBytes) {
      SHEAF_RETURN_IF_ERROR(group_.Await(line_, waiting, sender_, [&] {
        return record_.staged.load(std::memory_order_acquire) > chunks_;
      }));
      std::memcpy(to + done, group_.pair_slot(sender_, group_.rank(), chunks_),
                  std::min(kPairSlotBytes, bytes - done));
      answer_.taken.store(++chunks_, std::memory_order_release);
      RingBell(bell, Lane::kControl);
    }
  }
  answer_.finished.store(message, std::memory_order_release);
  RingBell(bell, Lane::kControl);
  return absl::OkStatus();
}

}  // namespace sheaf
