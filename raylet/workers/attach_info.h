// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who attached to this node, as the attach server tells the raylet.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/ids.h"
#include "shm/segment.h"

namespace sheaf {

enum class ProcessRole : uint8_t {
  kDriver = 0,
  kWorker = 1,  // Its ProcessId is the one that WorkerSpec gave it.
  kTool = 2,    // The command line, a dashboard: asks for state, runs nothing.
};

struct AttachInfo {
  ProcessRole role = ProcessRole::kTool;
  int32_t os_pid = 0;
  std::string words;       // The command line, for listings; may be empty.
  std::string executable;  // Of a driver: the path of its program, as far as the kernel knows one.
  // shm/process_segment.h, as the raylet maps it. Null: a tool, it uses no store.
  std::shared_ptr<Mapping> segment;
};

// Numbers the processes of one node, from 1. Node numbers are never reused, so neither is a
// ProcessId. Thread-safe: the raylet takes numbers for workers, the attach server for drivers and
// tools.
class ProcessNumbers {
 public:
  explicit ProcessNumbers(NodeNumber node) : node_(node) {}
  ProcessId Take() { return {node_, next_.fetch_add(1, std::memory_order_relaxed)}; }

 private:
  const NodeNumber node_;
  std::atomic<uint32_t> next_{1};
};

}  // namespace sheaf
