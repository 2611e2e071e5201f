// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/reference_ledger.h"

#include <algorithm>
#include <cstring>

#include "base/parse_frame.h"
#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<std::vector<ObjectId>> ParseIds(std::string_view bytes) {
  if (bytes.size() % sizeof(ObjectId) != 0) {
    return absl::InvalidArgumentError("a list of ids is no multiple of 16 bytes");
  }
  std::vector<ObjectId> ids(bytes.size() / sizeof(ObjectId));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

void AppendId(std::string* bytes, ObjectId id) {
  bytes->append(reinterpret_cast<const char*>(&id), sizeof(id));
}

ReferenceLedger::ReferenceLedger(NodeNumber node, Clock& clock, Transport& transport,
                                 std::function<bool(ProcessId)> is_dead)
    : node_(node), clock_(clock), transport_(transport), is_dead_(std::move(is_dead)) {}

absl::Status ReferenceLedger::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kRefsReport) {
    SHEAF_ASSIGN_OR_RETURN(const auto report, ParseFrame<proto::RefsReport>(frame));
    return OnReport(from, report);
  }
  SHEAF_ASSIGN_OR_RETURN(const auto ack, ParseFrame<proto::NodeRefsAck>(frame));
  OnAck(from, ack);
  return absl::OkStatus();
}

absl::Status ReferenceLedger::OnReport(ProcessId process, const proto::RefsReport& message) {
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> held, ParseIds(message.held_ids()));
  SHEAF_ASSIGN_OR_RETURN(const std::vector<ObjectId> dropped, ParseIds(message.dropped_ids()));
  Holder& holder = holders_[process];
  const ReportKey key{process, message.sequence()};
  if (reports_.contains(key)) return absl::OkStatus();
  if (holder.held.size() + held.size() > kMaxHeldByProcess) {
    return absl::ResourceExhaustedError("more references than a process can hold");
  }
  const bool repeated = message.sequence() <= holder.last_sequence;
  if (!repeated) {
    holder.last_sequence = message.sequence();
    // A reference can come and go several times between two reports: it did last what it did once
    // more.
    absl::flat_hash_map<ObjectId, int> gains;
    const bool mixed = !held.empty() && !dropped.empty();
    if (mixed) {
      for (const ObjectId id : held) ++gains[id];
      for (const ObjectId id : dropped) --gains[id];
    }
    for (const ObjectId id : held) {
      if (id.maker() != process && (!mixed || gains.at(id) > 0)) Add(process, id);
    }
    for (const ObjectId id : dropped) {
      if (!mixed || gains.at(id) < 0) Remove(process, id);
    }
  }
  Report report;
  absl::btree_set<ProcessId> touched;
  for (const ObjectId id : dropped) touched.insert(id.maker());
  for (const ObjectId id : held) {
    const ProcessId maker = id.maker();
    if (maker == process || !holder.held.contains(id)) continue;
    touched.insert(maker);
    Owner& owner = OwnerOf(id);
    if (owner.dead) {
      if (owner.unsettled.contains(id)) {
        report.open[maker].push_back(id);
        owner.waiting[key] = kNotSent;
      } else {
        AppendId(&report.orphan_ids, id);
      }
      continue;
    }
    const Reference& reference = owner.references.at(id);
    if (reference.told_version != 0 && reference.told_version <= owner.acked) continue;
    report.open[maker].push_back(id);
    uint64_t& version = owner.waiting[key];
    version = std::max(version, reference.told_version == 0 ? kNotSent : reference.told_version);
  }
  if (report.open.empty()) {
    Answer(key, report);
  } else {
    reports_.emplace(key, std::move(report));
  }
  for (const ProcessId maker : touched) {
    if (const auto it = owners_.find(maker); it != owners_.end()) Flush(maker, it->second);
  }
  return absl::OkStatus();
}

void ReferenceLedger::OnAck(ProcessId process, const proto::NodeRefsAck& ack) {
  const auto it = owners_.find(process);
  if (it == owners_.end() || ack.node() != node_) return;
  Owner& owner = it->second;
  if (owner.message.empty() || ack.version() != owner.version) return;
  owner.acked = owner.version;
  owner.message.clear();
  std::vector<ReportKey> settled;
  for (const auto& [key, version] : owner.waiting) {
    if (version <= owner.acked) settled.push_back(key);
  }
  for (const ReportKey& key : settled) {
    owner.waiting.erase(key);
    ReportSettled(key, process, false);
  }
  Flush(process, owner);
}

void ReferenceLedger::Hold(ProcessId raylet, ObjectId id) {
  Add(raylet, id);
  Flush(id.maker(), OwnerOf(id));
}

void ReferenceLedger::Unhold(ProcessId raylet, ObjectId id) {
  Remove(raylet, id);
  if (const auto it = owners_.find(id.maker()); it != owners_.end()) Flush(it->first, it->second);
}

void ReferenceLedger::TellBeforeDeath(ProcessId process) {
  absl::btree_map<ProcessId, absl::btree_set<ObjectId>> begun;  // By owner.
  const auto first = reports_.lower_bound({process, 0});
  const auto last = reports_.upper_bound({process, UINT64_MAX});
  for (auto report = first; report != last; ++report) {
    for (const auto& [maker, ids] : report->second.open) {
      const Owner& owner = owners_.at(maker);
      if (owner.dead || owner.message.empty()) continue;
      absl::btree_set<ObjectId>& held = begun[maker];
      for (const ObjectId id : ids) {
        const auto change = owner.changes.find(id);
        const bool is_to_be_told = change != owner.changes.end() && change->second;
        if (is_to_be_told && held.size() < kMaxIdsPerVersion) held.insert(id);
      }
    }
  }
  for (const auto& [maker, held] : begun) {
    if (!held.empty()) TellNow(maker, owners_.at(maker), held);
  }
}

// What is on its way is said again, which changes nothing; ids that were dropped there and are held
// now are held.
void ReferenceLedger::TellNow(ProcessId process, Owner& owner,
                              const absl::btree_set<ObjectId>& held) {
  proto::NodeRefs message;
  message.ParseFromString(owner.message);
  message.set_version(++owner.version);
  const std::vector<ObjectId> dropped = ParseIds(message.dropped_ids()).value();
  message.clear_dropped_ids();
  for (const ObjectId id : dropped) {
    if (!held.contains(id)) AppendId(message.mutable_dropped_ids(), id);
  }
  for (const ObjectId id : held) {
    AppendId(message.mutable_held_ids(), id);
    owner.references.at(id).told_version = owner.version;
    owner.changes.erase(id);
  }
  Send(process, owner, message);
}

void ReferenceLedger::OwnerDied(ProcessId process) {
  const auto it = owners_.find(process);
  if (it == owners_.end() || it->second.dead) return;
  Owner& owner = it->second;
  owner.dead = true;
  owner.message.clear();
  owner.changes.clear();
  absl::erase_if(owner.references, [](const auto& entry) { return entry.second.holders.empty(); });
  for (const auto& [id, reference] : owner.references) owner.unsettled.insert(id);
  orphans_.insert(orphans_.end(), owner.unsettled.begin(), owner.unsettled.end());
  SettleReports(process, owner);
}

void ReferenceLedger::Settled(const std::vector<ObjectId>& orphans) {
  absl::btree_set<ProcessId> owners;
  for (const ObjectId id : orphans) {
    const auto owner = owners_.find(id.maker());
    if (owner != owners_.end() && owner->second.unsettled.erase(id) != 0) {
      owners.insert(owner->first);
    }
  }
  for (const ProcessId owner : owners) SettleReports(owner, owners_.at(owner));
}

// Of a dead owner, which goes when nothing of it is held and nobody waits.
void ReferenceLedger::SettleReports(ProcessId process, Owner& owner) {
  std::vector<ReportKey> settled;
  for (const auto& [key, version] : owner.waiting) {
    const std::vector<ObjectId>& ids = reports_.at(key).open.at(process);
    if (std::none_of(ids.begin(), ids.end(),
                     [&](ObjectId id) { return owner.unsettled.contains(id); })) {
      settled.push_back(key);
    }
  }
  for (const ReportKey& key : settled) {
    owner.waiting.erase(key);
    ReportSettled(key, process, true);
  }
  if (owner.references.empty() && owner.waiting.empty()) owners_.erase(process);
}

std::vector<ProcessId> ReferenceLedger::OwnersOn(NodeNumber node) const {
  std::vector<ProcessId> found;
  for (const auto& [process, owner] : owners_) {
    if (process.node == node) found.push_back(process);
  }
  return found;
}

void ReferenceLedger::DropHolder(ProcessId process) {
  const auto it = holders_.find(process);
  if (it == holders_.end()) return;
  const absl::btree_set<ObjectId> held(it->second.held.begin(), it->second.held.end());
  absl::btree_set<ProcessId> touched;
  for (const ObjectId id : held) {
    touched.insert(id.maker());
    Remove(process, id);
  }
  holders_.erase(process);
  for (auto report = reports_.lower_bound({process, 0});
       report != reports_.end() && report->first.first == process;) {
    for (const auto& [maker, ids] : report->second.open) {
      touched.insert(maker);
      if (const auto owner = owners_.find(maker); owner != owners_.end()) {
        owner->second.waiting.erase(report->first);
      }
    }
    report = reports_.erase(report);
  }
  for (const ProcessId maker : touched) {
    if (const auto owner = owners_.find(maker); owner != owners_.end()) {
      Flush(maker, owner->second);
    }
  }
}

void ReferenceLedger::Tick() {
  const Nanos now = clock_.Now();
  for (auto& [process, owner] : owners_) {
    if (owner.message.empty() || now < owner.resend_at) continue;
    owner.resend_after = std::min(2 * owner.resend_after, kLastResend);
    owner.resend_at = now + owner.resend_after;
    transport_.To(process).Send(Lane::kControl, FrameKind::kNodeRefs, owner.message);
  }
}

bool ReferenceLedger::IsHeld(ObjectId id) const {
  const auto owner = owners_.find(id.maker());
  if (owner == owners_.end()) return false;
  const auto reference = owner->second.references.find(id);
  return reference != owner->second.references.end() && !reference->second.holders.empty();
}

bool ReferenceLedger::Holds(ProcessId process, ObjectId id) const {
  const auto holder = holders_.find(process);
  return holder != holders_.end() && holder->second.held.contains(id);
}

std::vector<ProcessId> ReferenceLedger::HoldersOf(ProcessId process) const {
  absl::btree_set<ProcessId> found;
  if (const auto it = owners_.find(process); it != owners_.end()) {
    for (const auto& [id, reference] : it->second.references) {
      found.insert(reference.holders.begin(), reference.holders.end());
    }
  }
  absl::erase_if(found, [](ProcessId holder) { return holder.is_raylet(); });
  return {found.begin(), found.end()};
}

std::vector<ProcessId> ReferenceLedger::holders() const {
  std::vector<ProcessId> result;
  for (const auto& [process, holder] : holders_) {
    if (!process.is_raylet()) result.push_back(process);
  }
  return result;
}

ReferenceLedger::Owner& ReferenceLedger::OwnerOf(ObjectId id) {
  const auto [it, inserted] = owners_.try_emplace(id.maker());
  if (inserted) it->second.dead = is_dead_(id.maker());
  return it->second;
}

void ReferenceLedger::Add(ProcessId process, ObjectId id) {
  if (!holders_[process].held.insert(id).second) return;
  ++held_references_;
  Owner& owner = OwnerOf(id);
  Reference& reference = owner.references[id];
  reference.holders.push_back(process);
  if (reference.holders.size() > 1) return;
  if (owner.dead) {
    owner.unsettled.insert(id);
    orphans_.push_back(id);
    return;
  }
  if (reference.told_version != 0) {
    owner.changes.erase(id);  // The drop was not sent yet.
  } else {
    owner.changes[id] = true;
  }
}

void ReferenceLedger::Remove(ProcessId process, ObjectId id) {
  const auto holder = holders_.find(process);
  if (holder == holders_.end() || holder->second.held.erase(id) == 0) return;
  --held_references_;
  const auto it = owners_.find(id.maker());
  Owner& owner = it->second;
  Reference& reference = owner.references.at(id);
  reference.holders.erase(std::find(reference.holders.begin(), reference.holders.end(), process));
  if (!reference.holders.empty()) return;
  if (owner.dead) {
    unheld_.push_back(id);
    owner.references.erase(id);
    owner.unsettled.erase(id);
    if (owner.references.empty() && owner.waiting.empty()) owners_.erase(it);
  } else if (reference.told_version != 0) {
    owner.changes[id] = false;
  } else {
    owner.changes.erase(id);
    owner.references.erase(id);
  }
}

void ReferenceLedger::Flush(ProcessId process, Owner& owner) {
  if (owner.dead) return SettleReports(process, owner);
  if (!owner.message.empty()) return;
  if (owner.changes.empty()) {
    // What waited for a version to come was dropped before it was sent: nothing is left to tell.
    const auto waiting = std::exchange(owner.waiting, {});
    for (const auto& [key, version] : waiting) ReportSettled(key, process, false);
    return;
  }
  proto::NodeRefs message;
  message.set_node(node_);
  message.set_version(++owner.version);
  size_t count = 0;
  for (auto it = owner.changes.begin(); it != owner.changes.end() && count < kMaxIdsPerVersion;
       ++count, it = owner.changes.erase(it)) {
    const auto [id, held] = *it;
    AppendId(held ? message.mutable_held_ids() : message.mutable_dropped_ids(), id);
    if (held) {
      owner.references.at(id).told_version = owner.version;
    } else {
      owner.references.erase(id);
    }
  }
  if (owner.changes.empty()) {
    for (auto& [key, version] : owner.waiting) {
      if (version == kNotSent) version = owner.version;
    }
  }
  Send(process, owner, message);
}

void ReferenceLedger::Send(ProcessId process, Owner& owner, const proto::NodeRefs& message) {
  owner.message = message.SerializeAsString();
  owner.resend_after = kFirstResend;
  owner.resend_at = clock_.Now() + owner.resend_after;
  transport_.To(process).Send(Lane::kControl, FrameKind::kNodeRefs, owner.message);
}

void ReferenceLedger::ReportSettled(ReportKey key, ProcessId owner, bool orphaned) {
  const auto it = reports_.find(key);
  if (it == reports_.end()) return;
  Report& report = it->second;
  const auto open = report.open.find(owner);
  if (open == report.open.end()) return;
  if (orphaned) {
    for (const ObjectId id : open->second) AppendId(&report.orphan_ids, id);
  }
  report.open.erase(open);
  if (!report.open.empty()) return;
  Answer(key, report);
  reports_.erase(it);
}

void ReferenceLedger::Answer(ReportKey key, const Report& report) {
  proto::RefsReported answer;
  answer.set_sequence(key.second);
  answer.set_orphan_ids(report.orphan_ids);
  SendMessage(transport_.To(key.first), FrameKind::kRefsReported, answer);
}

}  // namespace sheaf
