// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which objects of other owners the processes of this node hold, and telling each owner about the
// node as a whole: an owner counts nodes, not processes. Pure: Clock and Transport come in by
// reference. One thread.
//
// Towards a process: each RefsReport is answered by one RefsReported, once every owner named in it
// has acknowledged that this node holds the reference, or is dead: then the reference is an orphan,
// and it is for the raylet to find out who keeps the object and to say so (TakeOrphans, Settled).
// Towards an owner: NodeRefs carries changes under a version that grows; one version is on its way at
// a time and is sent again until acknowledged. Only before a death one takes the place of another,
// with all that it said. A reference gained and lost in between is never mentioned.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class ReferenceLedger {
 public:
  // What one process can hold at most: a bound on what a wild one can make the raylet store.
  static constexpr size_t kMaxHeldByProcess = size_t{1} << 24;
  static constexpr size_t kMaxIdsPerVersion = size_t{1} << 17;
  static constexpr Nanos kFirstResend = 200 * kMillisecond;
  static constexpr Nanos kLastResend = 2 * kSecond;

  // `is_dead` says whether an owner is known to be dead (or never lived).
  ReferenceLedger(NodeNumber node, Clock& clock, Transport& transport,
                  std::function<bool(ProcessId)> is_dead);

  // kRefsReport or kNodeRefsAck of `from`. kInvalidArgument: malformed; else as OnReport.
  absl::Status OnFrame(ProcessId from, const Frame& frame);
  // `holder` began or ceased to hold references. An id that is as often in one list as in the other
  // stays as it was. A repeated report changes nothing and is answered again. kInvalidArgument:
  // malformed; kResourceExhausted: over kMaxHeldByProcess; both change nothing.
  absl::Status OnReport(ProcessId holder, const proto::RefsReport& report);
  // `owner` knows what `ack.version` said. Stale ones are dropped.
  void OnAck(ProcessId owner, const proto::NodeRefsAck& ack);
  // A raylet holds or drops `id`: that of this node for what is nested in an object that it
  // adopted, that of another for its processes, when the object is here and its owner dead.
  void Hold(ProcessId raylet, ObjectId id);
  void Unhold(ProcessId raylet, ObjectId id);
  bool Holds(ProcessId holder, ObjectId id) const;

  // `holder` is dead, of which its peers are about to hear: who sent it a reference then lets go of it.
  // Each owner therefore learns first that this node holds what `holder` had just begun to hold, one
  // that has not acknowledged what came before, too.
  void TellBeforeDeath(ProcessId holder);
  // `owner` is dead: what is held of it are orphans now, and stay on record for adoption.
  void OwnerDied(ProcessId owner);
  // References that became orphans, or orphans that came; each once while it is held.
  std::vector<ObjectId> TakeOrphans() { return std::exchange(orphans_, {}); }
  // Where these are is known: reports that waited for nothing else are answered.
  void Settled(const std::vector<ObjectId>& orphans);
  // Nothing of `holder` can bring a new reference to light any more (its rings are drained): all
  // its references go.
  void DropHolder(ProcessId holder);
  void Tick();  // Resends.

  bool IsHeld(ObjectId id) const;
  // Owners on `node` of which something is held here, by id.
  std::vector<ProcessId> OwnersOn(NodeNumber node) const;
  // Processes of this node that hold something of `owner`, by id.
  std::vector<ProcessId> HoldersOf(ProcessId owner) const;
  std::vector<ProcessId> holders() const;
  bool IsHolder(ProcessId process) const { return holders_.contains(process); }
  // References to objects of dead owners that nobody here holds any more; each once.
  std::vector<ObjectId> TakeUnheld() { return std::exchange(unheld_, {}); }

  size_t held_references() const { return held_references_; }  // Pairs of process and object.
  size_t unanswered_reports() const { return reports_.size(); }

 private:
  struct Reference {
    absl::InlinedVector<ProcessId, 2> holders;
    // The version that said "held"; 0: the owner believes it is not held.
    uint64_t told_version = 0;
  };
  using ReportKey = std::pair<ProcessId, uint64_t>;  // Holder, sequence.
  struct Owner {
    bool dead = false;
    absl::btree_set<ObjectId> unsettled;  // Of a dead one: orphans.
    absl::flat_hash_map<ObjectId, Reference> references;
    absl::btree_map<ObjectId, bool> changes;  // Not sent yet: held, or dropped.
    uint64_t version = 0;                     // The last that was sent.
    uint64_t acked = 0;
    std::string message;  // NodeRefs of `version`, for resending; empty: all is acknowledged.
    Nanos resend_at = 0;
    Nanos resend_after = 0;
    // Reports, and the version they wait for (kNotSent: a later one, or orphans).
    absl::btree_map<ReportKey, uint64_t> waiting;
  };
  struct Report {
    // By owner that has not acknowledged, or is dead and has unsettled orphans.
    absl::btree_map<ProcessId, std::vector<ObjectId>> open;
    std::string orphan_ids;
  };
  struct Holder {
    uint64_t last_sequence = 0;
    absl::flat_hash_set<ObjectId> held;
  };
  static constexpr uint64_t kNotSent = UINT64_MAX;

  Owner& OwnerOf(ObjectId id);
  void Add(ProcessId holder, ObjectId id);
  void Remove(ProcessId holder, ObjectId id);
  void Flush(ProcessId process, Owner& owner);
  void TellNow(ProcessId process, Owner& owner, const absl::btree_set<ObjectId>& held);
  void Send(ProcessId process, Owner& owner, const proto::NodeRefs& message);
  void SettleReports(ProcessId process, Owner& owner);
  void ReportSettled(ReportKey key, ProcessId owner, bool orphaned);
  void Answer(ReportKey key, const Report& report);

  const NodeNumber node_;
  Clock& clock_;
  Transport& transport_;
  const std::function<bool(ProcessId)> is_dead_;
  absl::btree_map<ProcessId, Owner> owners_;
  absl::btree_map<ProcessId, Holder> holders_;
  absl::btree_map<ReportKey, Report> reports_;  // Unanswered.
  std::vector<ObjectId> unheld_;
  std::vector<ObjectId> orphans_;  // New ones.
  size_t held_references_ = 0;
};

// The ids of a `..._ids` field. kInvalidArgument: not a multiple of 16 bytes.
absl::StatusOr<std::vector<ObjectId>> ParseIds(std::string_view bytes);
void AppendId(std::string* bytes, ObjectId id);

}  // namespace sheaf
