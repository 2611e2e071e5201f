// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/argument_ledger.h"

#include <algorithm>

namespace sheaf {

ArgumentLedger::ArgumentLedger(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}

bool ArgumentLedger::Ask(Call call, ProcessId caller, std::span<const HeldObject> objects,
                         Nanos now) {
  if (const auto known = calls_.find(call); known != calls_.end()) {
    if (known->second.place == 0) again_.push_back(call);
    return true;
  }
  size_t& count = calls_of_[call.first];
  if (count >= kMostOfOne) return false;
  ++count;
  Entry& entry = calls_[call];
  entry.caller = caller;
  entry.place = ++last_place_;
  for (const HeldObject& held : objects) {
    entry.objects.push_back(held.id);
    // As the first said it: what was counted must be taken off again.
    objects_.try_emplace(held.id, Object{.bytes = std::min(held.bytes, capacity_)});
  }
  std::sort(entry.objects.begin(), entry.objects.end());
  entry.objects.erase(std::unique(entry.objects.begin(), entry.objects.end()), entry.objects.end());
  for (const ObjectId id : entry.objects) ++objects_[id].entries;
  if (queue_.empty()) first_at_ = now;
  changed_ = true;
  queue_[entry.place] = call;
  return true;
}

void ArgumentLedger::CountRunning(Entry& entry, bool runs) {
  running_ += runs ? 1 : -1;
  for (const ObjectId id : entry.objects) {
    Object& object = objects_.at(id);
    if (runs && object.runners++ == 0) running_bytes_ += object.bytes;
    if (!runs && --object.runners == 0) running_bytes_ -= object.bytes;
  }
}

// What has become old enough stands from now on.
void ArgumentLedger::CountStanding(Nanos now) {
  while (!fresh_.empty()) {
    Entry& entry = calls_.at(fresh_.begin()->second);
    if (now - entry.admitted_at < kPatience) return;
    fresh_.erase(fresh_.begin());
    entry.admission = 0;
    entry.stands = true;
    for (const ObjectId id : entry.objects) {
      Object& object = objects_.at(id);
      if (object.standers++ == 0) standing_bytes_ += object.bytes;
    }
  }
}

void ArgumentLedger::Hold(Entry& entry, Nanos now) {
  if (queue_.begin()->first == entry.place) first_at_ = now;
  queue_.erase(entry.place);
  entry.place = 0;
  ++admitted_;
  for (const ObjectId id : entry.objects) {
    Object& object = objects_.at(id);
    if (object.holders++ == 0) held_bytes_ += object.bytes;
  }
  CountRunning(entry, true);
  changed_at_ = entry.admitted_at = now;
}

void ArgumentLedger::SetSuspended(Call call, bool suspended) {
  const auto found = calls_.find(call);
  if (found == calls_.end() || found->second.place != 0 || found->second.suspended == suspended)
    return;
  changed_ = true;
  found->second.suspended = suspended;
  CountRunning(found->second, !suspended);
  if (suspended) {
    ++suspended_of_[call.first];
  } else if (--suspended_of_[call.first] == 0) {
    suspended_of_.erase(call.first);
  }
}

void ArgumentLedger::Drop(const Call& call, Entry& entry, Nanos now) {
  changed_ = true;
  if (entry.place == 0) {
    SetSuspended(call, false);
    CountRunning(entry, false);
    --admitted_;
    for (const ObjectId id : entry.objects) {
      Object& object = objects_.at(id);
      if (--object.holders == 0) held_bytes_ -= object.bytes;
      if (entry.stands && --object.standers == 0) standing_bytes_ -= object.bytes;
    }
    if (entry.admission != 0) fresh_.erase(entry.admission);
    changed_at_ = now;
  } else {
    if (queue_.begin()->first == entry.place) first_at_ = now;
    queue_.erase(entry.place);
  }
  for (const ObjectId id : entry.objects) {
    const auto object = objects_.find(id);
    if (--object->second.entries == 0) objects_.erase(object);
  }
  if (--calls_of_[call.first] == 0) calls_of_.erase(call.first);
}

void ArgumentLedger::End(Call call, Nanos now) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  Drop(call, found->second, now);
  calls_.erase(found);
}

void ArgumentLedger::Forget(ProcessId process, Nanos now) {
  std::erase_if(again_, [&](const Call& call) { return call.first == process; });
  const auto first = calls_.lower_bound({process, 0});
  auto end = first;
  for (; end != calls_.end() && end->first.first == process; ++end)
    Drop(end->first, end->second, now);
  calls_.erase(first, end);
}

bool ArgumentLedger::IsWaiting(ProcessId process) const {
  for (auto call = calls_.lower_bound({process, 0});
       call != calls_.end() && call->first.first == process; ++call) {
    if (call->second.place != 0) return true;
  }
  return false;
}

bool ArgumentLedger::Fits(const Entry& entry, bool is_child) const {
  uint64_t held = held_bytes_;
  uint64_t running = running_bytes_;
  for (const ObjectId id : entry.objects) {
    const Object& object = objects_.at(id);
    if (object.holders == 0) held += object.bytes;
    if (object.runners == 0) running += object.bytes;
  }
  const uint64_t percent = capacity_ / 100;
  const uint64_t share = percent * kShare;
  if (is_child && running <= share && held <= percent * kMost) return true;
  const uint64_t rest = capacity_ - std::min(capacity_, standing_bytes_);
  if (held <= std::max(share, standing_bytes_ + rest / 2)) return true;
  return fresh_.empty() && held <= percent * kFull;
}

const ArgumentLedger::Call* ArgumentLedger::Choose(Nanos now, bool is_short) const {
  if (!suspended_of_.empty()) {
    for (const auto& [place, call] : queue_) {
      const Entry& entry = calls_.at(call);
      if (!IsChild(entry)) continue;
      if (running_ == 0 || (!is_short && Fits(entry, true))) return &call;
      break;
    }
  }
  const Call& first = queue_.begin()->second;
  if (admitted_ == 0) return &first;
  if (now - first_at_ >= kLongest) return &first;
  if (is_short) return nullptr;
  const bool stands_still = now - std::max(first_at_, changed_at_) >= kPatience;
  return stands_still || Fits(calls_.at(first), false) ? &first : nullptr;
}

// When time alone lets Choose say something else.
Nanos ArgumentLedger::NextLook(bool is_short) const {
  if (queue_.empty()) return kForever;
  Nanos next = first_at_ + kLongest;
  if (is_short) return next;
  next = std::min(next, std::max(first_at_, changed_at_) + kPatience);
  if (!fresh_.empty()) {
    next = std::min(next, calls_.at(fresh_.begin()->second).admitted_at + kPatience);
  }
  return next;
}

std::vector<ArgumentLedger::Call> ArgumentLedger::Admit(Nanos now, bool is_short) {
  std::vector<Call> admitted = std::exchange(again_, {});
  if (!changed_ && is_short == was_short_ && now < look_at_) return admitted;
  ++looks_;
  CountStanding(now);
  while (!queue_.empty()) {
    const Call* const chosen = Choose(now, is_short);
    if (chosen == nullptr) break;
    const Call call = *chosen;  // Hold takes it out of the queue.
    Entry& entry = calls_.at(call);
    Hold(entry, now);
    entry.admission = ++last_admission_;
    fresh_[entry.admission] = call;
    admitted.push_back(call);
  }
  changed_ = false;
  was_short_ = is_short;
  look_at_ = NextLook(is_short);
  return admitted;
}

}  // namespace sheaf
