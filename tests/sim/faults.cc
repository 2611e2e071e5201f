// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/faults.h"

namespace sheaf::sim {

std::string_view PlantName(Plant plant) {
  switch (plant) {
    case Plant::kNone:
      return "none";
    case Plant::kDropReply:
      return "drop_reply";
    case Plant::kDuplicatePush:
      return "duplicate_push";
    case Plant::kReorderCalls:
      return "reorder_calls";
    case Plant::kCorruptReply:
      return "corrupt_reply";
    case Plant::kDropFree:
      return "drop_free";
    case Plant::kDropTransitDone:
      return "drop_transit_done";
    case Plant::kDropLeaseReturn:
      return "drop_lease_return";
    case Plant::kDropCancel:
      return "drop_cancel";
    case Plant::kSilentDeath:
      return "silent_death";
    case Plant::kZombie:
      return "zombie";
    case Plant::kFalseFailures:
      return "false_failures";
    case Plant::kForgottenStart:
      return "forgotten_start";
    case Plant::kEarlyAck:
      return "early_ack";
    case Plant::kFrozenClock:
      return "frozen_clock";
    case Plant::kBackwardClock:
      return "backward_clock";
    case Plant::kLateDeath:
      return "late_death";
    case Plant::kLeakCredits:
      return "leak_credits";
    case Plant::kNeitherEnds:
      return "neither_ends";
    case Plant::kEndlessLease:
      return "endless_lease";
    case Plant::kUnfenced:
      return "unfenced";
    case Plant::kLostDeath:
      return "lost_death";
    case Plant::kKeptBundle:
      return "kept_bundle";
    case Plant::kEarlyRecovery:
      return "early_recovery";
    case Plant::kOldHeadObeyed:
      return "old_head_obeyed";
    case Plant::kHastyHead:
      return "hasty_head";
    case Plant::kTornSpill:
      return "torn_spill";
    case Plant::kStaleHolder:
      return "stale_holder";
    case Plant::kBothEnd:
      return "both_end";
    case Plant::kLostEnd:
      return "lost_end";
    case Plant::kSecondStart:
      return "second_start";
    case Plant::kWrongEnd:
      return "wrong_end";
    case Plant::kCount:
      break;
  }
  return "?";
}

int NodesFor(Plant plant) { return plant >= Plant::kLateDeath && !IsOfJobs(plant) ? 3 : 1; }

bool IsOfJobs(Plant plant) { return plant >= Plant::kLostEnd && plant < Plant::kCount; }

Plant PlantOf(std::string_view name) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(Plant::kCount); ++i) {
    if (PlantName(static_cast<Plant>(i)) == name) return static_cast<Plant>(i);
  }
  return Plant::kCount;
}

void FaultPlan::DrawOfDisks(Random& random) {
  if (random.OneIn(2))
    spill_full_every = static_cast<Nanos>(500 + random.Below(3000)) * kMillisecond;
  if (random.OneIn(2)) spill_write_fault_one_in = 4 + random.Below(20);
  if (random.OneIn(2)) spill_read_fault_one_in = 4 + random.Below(20);
}

void FaultPlan::DrawOfGcs(Random& random) {
  gcs_away_one_in = random.OneIn(4) ? 1 + random.Below(3) : 0;
  gcs_disk_full_every =
      random.OneIn(3) ? static_cast<Nanos>(500 + random.Below(3000)) * kMillisecond : 0;
}

void FaultPlan::AddThoseOf(Plant plant, Nanos span) {
  switch (plant) {
    case Plant::kEndlessLease:
    case Plant::kUnfenced:
      cut_off_every = span / 10;
      gcs_crash_every = 0;  // A GCS that starts anew gives nodes more time.
      break;
    case Plant::kLostDeath:
      cut_off_every = span / 10;
      gcs_crash_every = span / 3;
      gcs_away_one_in = 0;
      break;
    case Plant::kOldHeadObeyed:
    case Plant::kHastyHead:
      second_head_every = span / 10;
      break;
    case Plant::kEarlyRecovery:
      gcs_crash_every = span / 10;
      gcs_away_one_in = 0;
      break;
    default:
      break;
  }
}

// Whether it takes seconds until a planted bug can do harm.
bool TakesLong(Plant plant) { return plant >= Plant::kEndlessLease && plant < Plant::kTornSpill; }

std::string_view FaultName(Fault fault) {
  switch (fault) {
    case Fault::kWorkerKill:
      return "worker kills";
    case Fault::kActorKill:
      return "actor kills";
    case Fault::kDriverKill:
      return "driver kills";
    case Fault::kPause:
      return "pauses";
    case Fault::kStartFailure:
      return "failed starts";
    case Fault::kLateSocket:
      return "late sockets";
    case Fault::kGcsCrash:
      return "GCS crashes";
    case Fault::kGcsAway:
      return "GCS away for long";
    case Fault::kGcsDiskFull:
      return "full disks";
    case Fault::kSpillFull:
      return "full disks of stores";
    case Fault::kSpillWrite:
      return "failed spills";
    case Fault::kSpillRead:
      return "lost on disk";
    case Fault::kSpilled:
      return "objects spilled";
    case Fault::kRestored:
      return "restored";
    case Fault::kPartFetched:
      return "parts fetched";
    case Fault::kSecondHead:
      return "second heads";
    case Fault::kGcsLostWrites:
      return "writes lost";
    case Fault::kGcsFrameDropped:
      return "GCS frames dropped";
    case Fault::kGcsFrameDuplicated:
      return "duplicated";
    case Fault::kGcsFrameDelayed:
      return "delayed";
    case Fault::kSlowFrame:
      return "slow frames";
    case Fault::kNodeCrash:
      return "node crashes";
    case Fault::kNodesApart:
      return "nodes apart";
    case Fault::kNodeAwayGcs:
      return "nodes away from the GCS";
    case Fault::kNodeCutOff:
      return "cut off";
    case Fault::kNodeStopped:
      return "nodes stopped";
    case Fault::kSlowNode:
      return "slow nodes";
    case Fault::kDrain:
      return "drains";
    case Fault::kLinkLost:
      return "links lost";
    case Fault::kNodeFenced:
      return "nodes ended";
    case Fault::kCount:
      break;
  }
  return "?";
}

}  // namespace sheaf::sim
