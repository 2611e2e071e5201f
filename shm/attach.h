// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a process joins its node: one exchange over the raylet's unix socket, <session>/raylet.sock.
// Fixed structs, little endian, one socket message each; descriptors travel with them.
//
//   process                           raylet
//   AttachHello [+ executable]  --->  checks uid (SO_PEERCRED), magic, version, layouts, token
//                               <---  AttachWelcome + descriptors (AttachFd),
//                                     or AttachWelcome with a refusal
//   ... from now on frames travel over the ring pair with the raylet; on the socket only:
//                               <---  RingTag + ring pair, for each kNewRing frame
//   Its end: the process is gone, or it has left. The socket stays open while the process holds
//   views of objects.
//
// A tool (the command line) gets a welcome without descriptors and then asks: ToolHead + bytes of a
// proto::StateQuery up, ToolHead + bytes of a proto::StateAnswer down, in parts. The arena has a
// header of its own, with the magic and version of its layout (object_store/layout.h). The raylet
// trusts no field; a process trusts its raylet, but checks sizes before it maps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "shm/doorbell.h"
#include "shm/process_segment.h"
#include "shm/ring.h"

namespace sheaf {

// "SHEAF", version 1 of this exchange.
inline constexpr uint64_t kAttachMagic = 0x5348'4541'4600'0001;

// FNV-1a over numbers that describe a layout: sizes and offsets.
constexpr uint64_t FoldLayout(std::initializer_list<uint64_t> numbers,
                              uint64_t hash = 0xcbf2'9ce4'8422'2325) {
  for (uint64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (number >> (8 * byte) & 0xff)) * 0x100'0000'01b3;
    }
  }
  return hash;
}

enum class AttachRole : uint32_t { kDriver = 0, kWorker = 1, kTool = 2 };

struct AttachHello {
  uint64_t magic;
  uint64_t layout_hash;        // kShmLayoutHash of the sender.
  uint32_t role;               // AttachRole.
  int32_t os_pid;              // As the process sees itself: a label. What the kernel says counts.
  std::array<char, 40> token;  // Worker: what SHEAF_WORKER held, NUL-terminated. Others: zeros.
  std::array<char, 24> version;
  std::array<char, 168> words;  // The command line, for listings; NUL-terminated, cut.
};
static_assert(sizeof(AttachHello) == 256 && std::is_trivially_copyable_v<AttachHello>);

enum class AttachResult : uint32_t {
  kWelcome = 0,
  kBadHello = 1,      // Not an AttachHello, or a field out of range.
  kOtherVersion = 2,  // The process and the raylet are of two versions of Sheaf.
  kOtherLayout = 3,   // Same version, but built with other struct layouts.
  kOtherUser = 4,
  kUnknownToken =
      5,  // No worker with this token is awaited: its job ended, or it was awaited for too long.
  kNodeFull = 6,  // kMaxProcessesPerNode, or no descriptors or memory left.
  kShuttingDown = 7,
};

// The descriptors that come with a welcome, in this order.
enum class AttachFd : size_t { kBellBoard, kProcessSegment, kArena, kRayletRings, kCount };
inline constexpr size_t kAttachFds = static_cast<size_t>(AttachFd::kCount);

struct AttachWelcome {
  uint64_t magic;
  uint32_t result;   // AttachResult. Unless kWelcome, only `text` and `version` mean something.
  uint32_t bell;     // This process's index on the bell board.
  uint64_t process;  // ProcessId::packed() of this process.
  uint32_t job;      // Of a worker: the node's own number of its job, until kLeaseBegin says more.
                     // Others: 0.
  uint32_t raylet_bell;
  int32_t raylet_os_pid;
  uint32_t reserved;
  uint64_t arena_bytes;
  uint64_t node_start_ns;  // Of the raylet, monotonic: the zero of timelines of this node.
  std::array<char, 24> version;
  std::array<char, 432> text;  // Why not, and the remedy; NUL-terminated.
};
static_assert(sizeof(AttachWelcome) == 512 && std::is_trivially_copyable_v<AttachWelcome>);

// With one descriptor: a ring pair (shm/ring.h).
struct RingTag {
  uint64_t magic;
  uint64_t peer;  // ProcessId::packed() of the other end.
  uint64_t ring;  // As in the kNewRing frame.
  uint32_t peer_bell;
  uint32_t first;  // 1: this process is the first of the pair.
};
static_assert(sizeof(RingTag) == 32 && std::is_trivially_copyable_v<RingTag>);

// Before each part of a question or an answer of a tool.
struct ToolHead {
  uint64_t magic;
  uint32_t more;        // 1: another part of the same message follows.
  uint32_t body_bytes;  // Of this part, behind this head.
};
static_assert(sizeof(ToolHead) == 16 && std::is_trivially_copyable_v<ToolHead>);
inline constexpr size_t kMaxToolPart = 32 * 1024;
inline constexpr size_t kMaxToolQuestion = 256 * 1024;
inline constexpr size_t kMaxToolAnswer = 256 * 1024 * 1024;

// What two processes must agree on to share this layer's memory.
inline constexpr uint64_t kShmLayoutHash = FoldLayout({sizeof(AttachHello),
                                                       offsetof(AttachHello, role),
                                                       offsetof(AttachHello, version),
                                                       sizeof(AttachWelcome),
                                                       offsetof(AttachWelcome, arena_bytes),
                                                       offsetof(AttachWelcome, text),
                                                       kAttachFds,
                                                       sizeof(RingTag),
                                                       sizeof(ToolHead),
                                                       sizeof(Bell),
                                                       offsetof(Bell, knock),
                                                       offsetof(Bell, calls),
                                                       kCallBits,
                                                       kBellBoardBytes,
                                                       sizeof(RingControl),
                                                       offsetof(RingControl, writer_waits),
                                                       offsetof(RingControl, unwatched),
                                                       offsetof(RingControl, head),
                                                       sizeof(RingRecord),
                                                       offsetof(RingRecord, kind),
                                                       offsetof(RingRecord, more),
                                                       kRingBytes,
                                                       kRingDataOffset,
                                                       kRingPairBytes,
                                                       kMaxRecordBody,
                                                       sizeof(ProcessPage),
                                                       offsetof(ProcessPage, started_lease),
                                                       offsetof(ProcessPage, running),
                                                       kMetricsOffset,
                                                       kMetricsBytes,
                                                       kHazardOffset,
                                                       kHazardBytes,
                                                       kEventsOffset,
                                                       kEventsBytes,
                                                       kProfileOffset,
                                                       kProfileBytes,
                                                       kProcessSegmentBytes});

// Text in fixed arrays of this file: cut to fit, always NUL-terminated.
template <size_t N>
void StoreText(std::array<char, N>& out, std::string_view text) {
  out.fill('\0');
  text.copy(out.data(), N - 1);
}
template <size_t N>
std::string_view LoadText(const std::array<char, N>& text) {
  const std::string_view whole(text.data(), N);
  return whole.substr(0, whole.find('\0'));
}

}  // namespace sheaf
