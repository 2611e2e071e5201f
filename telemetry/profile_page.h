// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the time of a process's calls goes: always on, in its segment (shm/process_segment.h), so that
// the raylet reads it without asking, also after a death.
//
//   ProfileHeader | frames: functions of the language | nodes: a tree of them
//
// A node is a function as it was called by its parent, with the time that was spent in it and in
// nothing that it called. Nodes are numbered from 1, a parent before its children; node 0 is the
// root, which is no function. Nodes and frames are only ever added, and what they say is written
// before the header counts them (release); only times change, and only grow. Where there is no room
// for another one, its time is its parent's: sums stay exact.
// Who writes: one thread of the process. Who reads: the raylet, at any time. All words are atomic; a
// death between two stores loses one sample. Memory of zeros is valid. A misbehaving writer can only
// make its own numbers and texts wrong: readers check numbers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/process_segment.h"

namespace sheaf::telemetry {

inline constexpr size_t kProfileFrames = 3'000;  // Distinct ones of a process.
inline constexpr size_t kProfileNodes = 10'000;  // With the root.
inline constexpr size_t kFrameFunctionBytes = 96;
inline constexpr size_t kFrameFileBytes = 152;  // The end of a longer path.

struct FrameSlot {
  std::atomic<uint64_t> line;  // Of the function's beginning; 0: none.
  std::atomic<uint64_t> function[kFrameFunctionBytes / 8];
  std::atomic<uint64_t> file[kFrameFileBytes / 8];
};
static_assert(sizeof(FrameSlot) == 256);

struct NodeSlot {
  std::atomic<uint64_t> place;  // Number of the parent << 32 | number of the frame.
  std::atomic<uint64_t> self_us;
};

struct alignas(64) ProfileHeader {
  std::atomic<uint64_t> frames;
  std::atomic<uint64_t> nodes;    // Without the root.
  std::atomic<uint64_t> samples;  // Changes whenever some time has grown.
};

struct ProfilePage {
  ProfileHeader header;
  FrameSlot frames[kProfileFrames];
  NodeSlot nodes[kProfileNodes];
};
static_assert(sizeof(ProfilePage) <= kProfileBytes);

// The page inside a mapped process segment (kProcessSegmentBytes from `segment`).
inline ProfilePage& ProfilePageOf(std::byte* segment) {
  return *reinterpret_cast<ProfilePage*>(segment + kProfileOffset);
}
inline const ProfilePage& ProfilePageOf(const std::byte* segment) {
  return *reinterpret_cast<const ProfilePage*>(segment + kProfileOffset);
}

}  // namespace sheaf::telemetry
