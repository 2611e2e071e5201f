// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The objects of dead owners. What was sealed and is still borrowed on this node stays in its store
// until the last borrower drops it, and holds the references inside it as long. Who borrows it on
// other nodes only the owner knew: they have a moment to ask for it.
//
// References that are held here to objects that are not here are orphans. The other nodes are asked
// once which of them have them, and keep what they have as long as this node holds the reference
// (orphan_ledger.h). A process that asks for one hears where it is, or that it is gone, when they
// have answered.
//
// Pure; one thread. A malformed frame is kInvalidArgument, and changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "metrics/page.h"
#include "object_store/server/store_server.h"
#include "proto/raylet.pb.h"
#include "raylet/death_register.h"
#include "raylet/objects/orphan_ledger.h"
#include "raylet/objects/reference_ledger.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

// By object, with the references inside.
using AdoptedObjects = absl::btree_map<ObjectId, std::vector<ObjectId>>;

class Adoption {
 public:
  // All outlive it.
  struct Deps {
    Clock& clock;
    Transport& transport;
    StoreServer& store;
    metrics::Page& metrics;
    const ClusterView& view;
    const DeathRegister& deaths;
    ReferenceLedger& references;
    // Not all that a dead process of this node sent has been read by its peers yet.
    std::function<bool(ProcessId)> is_draining;
  };
  explicit Adoption(Deps deps);
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  // --- Owners die.
  // `owner`, of any node, is dead: who asks now for what it had learns what is here.
  void OnOwnerDied(ProcessId owner);
  // No reference can be on its way from `owner` any more: what nobody borrows goes, after a moment.
  void AdoptObjectsOf(ProcessId owner);
  // Of a dead owner: those of `candidates` that somebody here holds are kept.
  void Adopt(std::vector<ObjectId> candidates);
  void OnNodeDead(NodeNumber node);
  // --- What is said.
  absl::Status OnQuery(ProcessId from, const Frame& frame);       // kAdoptedQuery of a process.
  absl::Status OnOrphanRefs(ProcessId from, const Frame& frame);  // Of another raylet.
  absl::Status OnOrphanRefsAck(ProcessId from, const Frame& frame);
  // --- Objects go.
  // The store has dropped `id`.
  void OnGone(ObjectId id) { Disown(id); }
  // It has asked for nothing any more.
  void OnProcessGone(ProcessId process);
  // Carries out what follows from the changes of the ledgers.
  void Settle();
  void Tick();

  const AdoptedObjects& adopted() const { return adopted_; }
  bool IsAdopted(ObjectId id) const { return adopted_.contains(id); }
  // Other nodes may still say that they want what `owner` had.
  bool IsInGrace(ProcessId owner) const { return grace_.contains(owner); }
  // Nodes that keep an orphan for this one; that they did not have it after all.
  std::vector<NodeNumber> PlacesOf(ObjectId id) const { return orphans_.PlacesOf(id); }
  void PlacesFailed(ObjectId id) { orphans_.PlacesFailed(id); }
  std::vector<ObjectId> orphans() const { return orphans_.ids(); }
  size_t orphan_count() const { return orphans_.size(); }
  // --- For sweeps.
  // An orphan that was dropped while its owner was alive, for all that was known here, goes.
  void ForgetIfUnheld(ObjectId orphan);
  // Objects of `owner`, of which nothing is left, that came late are kept or go like the others.
  void AdoptLateObjectsOf(ProcessId owner);
  // Makers of objects here that nobody has known for a while: a writer that scribbled over the name
  // of its object before it was learned gave it to nobody.
  std::vector<ProcessId> FindUnknownMakers();

 private:
  // About objects of dead owners; it waits for other nodes.
  struct Question {
    proto::AdoptedQuery query;
    std::vector<ObjectId> ids;
    Nanos until = 0;  // Then it is answered in any case.
  };
  Nanos Now() const { return deps_.clock.Now(); }
  ProcessId Self() const { return RayletOf(deps_.view.local); }
  std::vector<NodeNumber> OtherNodes() const;             // Alive ones.
  std::vector<ObjectId> LearnObjectsOf(ProcessId owner);  // All sealed ones here.
  void ForgetUnadoptedOf(ProcessId owner);
  void Disown(ObjectId id);
  void SettleOrphans();
  void SettleUnheld();
  void BeginGrace(ProcessId owner);
  void EndGrace();
  void HoldInside(ObjectId inner);
  void UnholdInside(ObjectId inner);
  bool IsAnswerable(const Question& question) const;
  void Answer(ProcessId asker, const Question& question);
  void AnswerQuestions();

  const Deps deps_;
  OrphanLedger orphans_;
  AdoptedObjects adopted_;
  // Objects inside which each lies: adopted ones, and those that may be yet.
  absl::btree_map<ObjectId, uint32_t> nested_holds_;
  // Of dead owners: when their objects go, and until then what lies inside those that nobody here
  // holds. Its own owners are alive, and would free it.
  struct Grace {
    Nanos until = 0;
    AdoptedObjects inside;
  };
  absl::btree_map<ProcessId, Grace> grace_;
  // By asker and the ids asked for.
  absl::btree_map<std::pair<ProcessId, std::string>, Question> questions_;
  absl::btree_map<NodeNumber, uint64_t> orphan_versions_;  // The last that each node sent.
  absl::btree_map<ProcessId, Nanos> unknown_makers_;       // Since when they are.
  Nanos next_look_for_makers_ = 0;
};

}  // namespace sheaf
