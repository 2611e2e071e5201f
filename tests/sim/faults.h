// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What goes wrong in a run: faults that Sheaf promises to survive, drawn anew for each seed, and
// bugs that are planted at the seams to see whether the oracle notices.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/random.h"

namespace sheaf::sim {

// Planted bugs. Each breaks a promise that one of the seams makes.
enum class Plant : uint8_t {
  kNone = 0,
  kDropReply,        // A ring loses a reply.
  kDuplicatePush,    // A ring hands over a call twice.
  kReorderCalls,     // A ring swaps two calls.
  kCorruptReply,     // A ring flips a bit of a result.
  kDropFree,         // A ring loses the word that an object is free.
  kDropTransitDone,  // A ring loses the word that references have arrived.
  kDropLeaseReturn,  // A ring loses a returned lease.
  kDropCancel,       // A ring loses a cancellation.
  kSilentDeath,      // The launcher does not report a worker's death.
  kZombie,           // The launcher reports a death of a process that lives on.
  kFalseFailures,    // The launcher says of workers that start that they do not.
  kForgottenStart,   // The page that says which call was started reads as if none was.
  kEarlyAck,         // The storage of the GCS acknowledges what it has not kept.
  kFrozenClock,      // A process's clock stands still.
  kBackwardClock,    // The raylet's clock runs backward.
  // Of clusters with several nodes.
  kLateDeath,      // The word that a process is dead takes a minute.
  kLeakCredits,    // A ring loses what says that a receiver on another node has taken frames.
  kNeitherEnds,    // The word that a node does not hear another is lost.
  kEndlessLease,   // The lease of a detached actor never expires.
  kUnfenced,       // A node that was declared dead is answered and heard as if it were alive.
  kLostDeath,      // The disk of the GCS acknowledges that a node is dead, and does not keep it.
  kKeptBundle,     // The word that a bundle goes back is lost.
  kEarlyRecovery,  // A GCS that starts again takes all nodes for having reported.
  kOldHeadObeyed,  // Nodes do not compare the terms of heads.
  kHastyHead,      // A head that was stopped says at once what it has to say.
  kTornSpill,      // Half of what was spilled is not on disk, and nobody checks that.
  kStaleHolder,    // The GCS names a holder of a name that is over.
  kBothEnd,  // A node that does not hear another ends, and does not ask the GCS which of the two.
  // Of runs in which drivers submit jobs.
  kLostEnd,      // The word that a command has ended is lost.
  kSecondStart,  // A command is started twice.
  kWrongEnd,     // A command that failed is reported as one that did well.
  kCount,
};
std::string_view PlantName(Plant plant);
int NodesFor(Plant plant);  // How large a cluster must be for it to act.
bool IsOfJobs(Plant plant);
bool TakesLong(Plant plant);           // A run must last for the harm to show.
Plant PlantOf(std::string_view name);  // kCount: there is none of that name.

enum class Fault : uint8_t {
  kWorkerKill = 0,  // At an event, or in the middle of one.
  kActorKill,
  kDriverKill,
  kPause,         // A process (or the raylet) stands still for a while.
  kStartFailure,  // A worker does not come up.
  kLateSocket,    // A forked child keeps the socket of a dead process.
  kGcsCrash,
  kGcsAway,        // Such a crash, and it is back only after a minute or two.
  kGcsDiskFull,    // The disk of the GCS takes nothing but what is vital for a while.
  kSpillFull,      // So is that to which a node spills.
  kSpillWrite,     // A write of spilled objects fails,
  kSpillRead,      // or what was spilled is lost.
  kSpilled,        // No faults: objects that went to disk,
  kRestored,       // and came back.
  kPartFetched,    // Parts of objects that were read from afar or from disk.
  kSecondHead,     // The head is stopped, another takes over with its disk, and it wakes beside it.
  kGcsLostWrites,  // What the crash took with it.
  kGcsFrameDropped,
  kGcsFrameDuplicated,
  kGcsFrameDelayed,
  kSlowFrame,
  kNodeCrash,    // A raylet and all its processes vanish; another node joins.
  kNodesApart,   // Two nodes hear nothing of each other for a while: frames come later.
  kNodeAwayGcs,  // A node and the GCS lose all that they send to each other for a while.
  kNodeCutOff,   // The same for so long that the node is declared dead.
  kNodeStopped,  // All of a node stands still, for as long.
  kSlowNode,     // Everything between a node and others takes long for a while.
  kDrain,        // A node is asked to take no new work, and vanishes some time later.
  kLinkLost,     // Two nodes never hear anything of each other again, though the GCS hears both.
  kNodeFenced,   // What follows of it: a node was declared dead and has ended.
  kCount,
};
std::string_view FaultName(Fault fault);
using FaultCounts = std::array<uint64_t, static_cast<size_t>(Fault::kCount)>;

// Which faults a run has, and how often: means in virtual time, 0 for never. Many seeds with few
// kinds each find more than many with all of them.
struct FaultPlan {
  Nanos worker_kill_every = 0;
  Nanos driver_kill_every = 0;
  Nanos pause_every = 0;
  Nanos gcs_crash_every = 0;
  uint64_t gcs_away_one_in = 0;  // Of its crashes.
  Nanos gcs_disk_full_every = 0;
  Nanos second_head_every = 0;
  uint64_t start_failure_one_in = 0;
  // Of nodes with small stores.
  Nanos spill_full_every = 0;
  uint64_t spill_write_fault_one_in = 0, spill_read_fault_one_in = 0;
  uint64_t late_socket_one_in = 0;
  uint64_t gcs_frame_fault_one_in = 0;
  uint64_t slow_frame_one_in = 0;
  // Of clusters with several nodes.
  Nanos node_crash_every = 0;
  Nanos apart_every = 0;
  Nanos away_every = 0;
  Nanos cut_off_every = 0;  // Or stopped.
  Nanos slow_node_every = 0;
  Nanos lose_link_every = 0;
  Nanos drain_every = 0;

  // For a run that has faults for `span`: of each kind that it has, some two to ten.
  void DrawOfNodes(Random& random, Nanos span) {
    auto some = [&] { return span / static_cast<Nanos>(2 + random.Below(9)); };
    auto maybe = [&] { return random.OneIn(3) ? some() : 0; };
    if (gcs_crash_every != 0) gcs_crash_every = some();
    node_crash_every = maybe();
    apart_every = maybe();
    away_every = maybe();
    cut_off_every = maybe();
    slow_node_every = maybe();
    lose_link_every = maybe();
    drain_every = maybe();
  }
  // What befalls the disks of small stores.
  void DrawOfDisks(Random& random);
  // What befalls the GCS for long.
  void DrawOfGcs(Random& random);
  // Heads that are replaced while they are stopped, in a run with faults for `span`.
  void DrawOfHeads(Random& random, Nanos span) {
    second_head_every = span / static_cast<Nanos>(2 + random.Below(3));
  }
  // The faults under which a planted bug does harm, for a run that has them for `span`.
  void AddThoseOf(Plant plant, Nanos span);
  // Whatever makes somebody speak to the GCS.
  static FaultPlan OfMethods(Random& random) {
    FaultPlan plan;
    plan.worker_kill_every = 150 * kMillisecond;
    plan.driver_kill_every = kSecond;
    // A GCS that dies so often never finds out which nodes are dead.
    plan.gcs_crash_every = random.OneIn(2) ? 1200 * kMillisecond : 10 * kSecond;
    plan.node_crash_every = 3 * kSecond;
    plan.drain_every = kSecond;
    return plan;
  }
  static FaultPlan Draw(Random& random) {
    FaultPlan plan;
    if (random.OneIn(6)) return plan;  // Without faults nothing may fail at all.
    auto maybe = [&](auto value) { return random.OneIn(2) ? value : decltype(value){0}; };
    plan.worker_kill_every = maybe(static_cast<Nanos>(20 + random.Below(400)) * kMillisecond);
    plan.driver_kill_every =
        random.OneIn(3) ? static_cast<Nanos>(500 + random.Below(4000)) * kMillisecond : 0;
    plan.pause_every = maybe(static_cast<Nanos>(100 + random.Below(2000)) * kMillisecond);
    plan.gcs_crash_every = maybe(static_cast<Nanos>(500 + random.Below(3000)) * kMillisecond);
    plan.start_failure_one_in = maybe(5 + random.Below(40));
    plan.late_socket_one_in = maybe(2 + random.Below(10));
    plan.gcs_frame_fault_one_in = maybe(4 + random.Below(60));
    plan.slow_frame_one_in = maybe(50 + random.Below(2000));
    return plan;
  }
};

}  // namespace sheaf::sim
