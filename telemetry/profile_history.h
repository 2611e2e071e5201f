// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the time of calls went on this node, over the last hour: the profiles of its processes, also
// of those that are gone, as one tree by job and function, in windows of time. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/raylet.pb.h"
#include "telemetry/profile_page.h"

namespace sheaf::telemetry {

class ProfileHistory {
 public:
  // Windows are short first, and are merged when they are old.
  static constexpr Nanos kShortWindow = 2 * kSecond;
  static constexpr Nanos kShortWindowsFor = 600 * kSecond;
  static constexpr Nanos kLongWindow = 60 * kSecond;
  static constexpr Nanos kKeptFor = 3600 * kSecond;
  // Beyond these the oldest windows go, and with them the nodes that no other has.
  static constexpr size_t kMostNodes = 100'000;
  static constexpr size_t kMostTimes = 1'000'000;  // In all windows together; 12 bytes each.

  ProfileHistory();
  ProfileHistory(const ProfileHistory&) = delete;
  ProfileHistory& operator=(const ProfileHistory&) = delete;

  // `page` stays valid until Remove; `job` says to which job its process belongs by now.
  void Add(ProcessId process, const ProfilePage& page, std::function<JobNumber()> job);
  // Reads a last time.
  void Remove(ProcessId process, Nanos now);
  // Takes in what was spent since. True: something was.
  bool Read(Nanos now);

  // Adds to `answer` what `query` (PROFILE) asks for, about `limit` nodes of the tree, those that took
  // longest: of its `id`, a process, since it began, else of the time, the job and the function. `to_wall`: wall time less monotonic time.
  void AddProfile(const proto::StateQuery& query, uint32_t limit, Nanos to_wall,
                  proto::StateAnswer& answer) const;
  size_t nodes() const { return nodes_.size() - 1; }

 private:
  struct Frame {
    std::string function, file;
    uint32_t line = 0;
  };
  struct Node {
    uint32_t parent = 0;  // 0: of a job's own.
    uint32_t frame = 0;
    JobNumber job = 0;
  };
  struct Process {
    const ProfilePage* page;
    std::function<JobNumber()> job;
    uint64_t samples = 0;           // As the page had it last.
    std::vector<uint64_t> self_us;  // The same, by its numbers;
    std::vector<uint32_t> nodes;    // here those are these. 0: not known yet.
    std::vector<uint32_t> frames;   // The same of frames, less one.
  };
  struct Window {
    Nanos begin = 0;  // On the monotonic clock.
    Nanos length = 0;
    absl::flat_hash_map<uint32_t, uint64_t> self_us;  // By node.
  };
  bool ReadFrom(Process& process, Nanos now);
  uint32_t NodeOf(Process& process, uint32_t number, JobNumber job);
  uint32_t FrameOf(Process& process, uint32_t number);
  uint32_t InternFrame(const Frame& frame);
  uint32_t Intern(uint32_t parent, uint32_t frame, JobNumber job);
  Window& WindowAt(Nanos now);
  void AgeWindows(Nanos now);
  void KeepBounds();
  void DropUnused();
  std::vector<uint64_t> TimesOf(const proto::StateQuery& query, Nanos to_wall) const;
  static bool IsCalled(const Frame& frame, const std::string& function);

  std::vector<Frame> frames_;
  absl::flat_hash_map<std::string, uint32_t> frame_numbers_;
  std::vector<Node> nodes_;  // A parent before its children; the first is the root.
  absl::flat_hash_map<std::tuple<uint32_t, uint32_t, JobNumber>, uint32_t> node_numbers_;
  absl::btree_map<ProcessId, Process> processes_;
  std::deque<Window> windows_;  // The oldest first.
};

}  // namespace sheaf::telemetry
