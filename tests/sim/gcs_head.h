// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One head of the cluster: a machine with a disk, on it the real GcsService in a process that
// crashes and is started anew. What it says passes the guards of both processes of a real head, the
// GCS (gcs/gcs_process.h) and the node that carries its frames (cli/gcs_child.h); whose term is
// over the node hears when it meets others. The machine may stand still for a while.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gcs/gcs_service.h"
#include "gcs/head_terms.h"
#include "gcs/pause_guard.h"
#include "gcs/storage/memory_storage.h"
#include "rpc/term_fence.h"
#include "tests/sim/gcs_disk.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

struct HeadEvents {
  // A frame leaves for the raylet `to`.
  std::function<void(ProcessId to, FrameKind kind, std::string body)> out;
  std::function<void()> on_start, on_serving;  // Its GCS is there, and has begun a term.
  std::function<void()> on_away;               // It will be away for longer than links wait.
};

class GcsHead final : public Transport {
 public:
  // `number`: among the heads, from 1. Its disk has `rows`.
  GcsHead(World& world, uint64_t number, MemoryStorage::Disk rows, HeadEvents events);
  ~GcsHead() override;

  void Start();
  // The GCS dies, now or with its next write, and comes back later.
  void Crash(bool may_be_away);
  void CrashNow(bool may_be_away);
  // The machine stands still until then: what comes meanwhile waits, and so does its disk.
  void Stop(Nanos until);
  bool asleep() const { return world_.now() < asleep_until_; }
  // It stood still, and goes on.
  bool woke() const { return asleep_until_ != 0 && !asleep(); }
  Nanos asleep_until() const { return asleep_until_; }
  // Nothing leaves it any more; a little later it ends. (cli/node.cc: on_deposed.)
  void Depose();
  bool deposed() const { return deposed_; }
  bool up() const { return service_ != nullptr && !asleep(); }
  GcsService& service() { return *service_; }
  void FillDisk(Nanos duration) { full_until_ = world_.now() + duration; }
  // When its GCS is back, and its disk has room.
  Nanos well_at() const { return std::max(back_at_, full_until_); }

  uint64_t number() const { return number_; }
  // Of its GCS. Frames of an earlier one are dropped.
  uint64_t life() const { return life_; }
  // As the links of its node compare it.
  TermFence& fence() { return fence_; }
  const MemoryStorage::Disk& rows() const { return rows_; }
  void OnFrame(ProcessId from, FrameKind kind, std::string_view body);
  // Runs it then; where the machine stands still, when it goes on.
  void At(Nanos when, std::function<void()> work);

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId) override {}

 private:
  class NodeChannel final : public Channel {
   public:
    NodeChannel(GcsHead& head, ProcessId peer) : head_(head), peer_(peer) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override;
    size_t queued_bytes() const override { return 0; }

   private:
    GcsHead& head_;
    const ProcessId peer_;
  };
  std::unique_ptr<PauseGuard> MakeGuard(std::function<void(PauseGuard::Frame)> send);
  void Pulse();

  World& world_;
  const uint64_t number_;
  const HeadEvents events_;
  SeededRandom random_;
  MemoryStorage::Disk rows_;
  std::unique_ptr<GcsDisk> disk_;
  std::unique_ptr<PauseGuard> node_guard_, gcs_guard_;
  std::unique_ptr<GcsService> service_;
  HeadTerms terms_;
  TermFence fence_;
  uint64_t life_ = 0;
  std::map<ProcessId, NodeChannel> channels_;
  Nanos back_at_ = 0, full_until_ = 0, asleep_until_ = 0;
  bool deposed_ = false;
};

}  // namespace sheaf::sim
