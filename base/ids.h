// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The names of things. Every id carries the epoch of its maker: a process number is never used
// twice, so a message that names a dead incarnation is recognised wherever it arrives.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

using NodeNumber = uint32_t;  // Given by the GCS, never reused. 0 is the GCS itself.

// One process of the cluster. `process` 0 is the node's raylet; {0, 0} is the GCS.
struct ProcessId {
  NodeNumber node = 0;
  uint32_t process = 0;

  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ProcessId& id) {
    return H::combine(std::move(h), id.packed());
  }
  uint64_t packed() const { return uint64_t{node} << 32 | process; }
  static ProcessId Unpack(uint64_t packed) {
    return {static_cast<NodeNumber>(packed >> 32), static_cast<uint32_t>(packed)};
  }
  bool is_raylet() const { return process == 0 && node != 0; }
  std::string ToString() const;  // "3.17"
  // kInvalidArgument: `text` is not of that form, or names a raylet.
  static absl::StatusOr<ProcessId> FromText(std::string_view text);
};
inline constexpr ProcessId kGcs{0, 0};
constexpr ProcessId RayletOf(NodeNumber node) { return {node, 0}; }

// 16 bytes: the process that made it, then a 48-bit sequence number, then a 16-bit index. The tag
// keeps an ObjectId from passing as a TaskId.
template <class Tag>
struct Id {
  uint64_t maker_bits = 0;     // ProcessId::packed() of the maker (of an object: its owner).
  uint64_t sequence_bits = 0;  // sequence << 16 | index.

  static constexpr uint64_t kMaxSequence = (uint64_t{1} << 48) - 1;
  static Id Make(ProcessId maker, uint64_t sequence, uint16_t index = 0) {
    return {maker.packed(), sequence << 16 | index};
  }
  ProcessId maker() const { return ProcessId::Unpack(maker_bits); }
  uint64_t sequence() const { return sequence_bits >> 16; }
  uint16_t index() const { return static_cast<uint16_t>(sequence_bits); }
  bool is_nil() const { return maker_bits == 0 && sequence_bits == 0; }

  friend auto operator<=>(const Id&, const Id&) = default;
  template <class H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.maker_bits, id.sequence_bits);
  }
  std::string Binary() const {  // 16 bytes, little endian, as protobuf messages carry it.
    std::string out(16, '\0');
    std::memcpy(out.data(), this, 16);
    return out;
  }
  // kInvalidArgument: not 16 bytes.
  static absl::StatusOr<Id> FromBinary(std::string_view bytes) {
    Id id;
    if (bytes.size() != sizeof(Id)) {
      return absl::InvalidArgumentError("an id has 16 bytes");
    }
    std::memcpy(&id, bytes.data(), sizeof(Id));
    return id;
  }
  std::string ToHex() const;  // 32 digits: node, process, sequence, index.
  // kInvalidArgument: not 32 hexadecimal digits.
  static absl::StatusOr<Id> FromHex(std::string_view hex);
};

using TaskId = Id<struct TaskTag>;      // Index 0.
using ObjectId = Id<struct ObjectTag>;  // Of a return: TaskId plus index 1...; puts: index 1.
using ActorId = Id<struct ActorTag>;    // The TaskId of its creation task.
using PlacementGroupId = Id<struct PlacementGroupTag>;  // Made by the process that asked for it.

static_assert(sizeof(ProcessId) == 8 && sizeof(ObjectId) == 16);
static_assert(std::is_trivially_copyable_v<ObjectId>);  // Kept in shared memory.

inline ObjectId ReturnOf(TaskId task, uint16_t index) {  // `index` counts from 0.
  return {task.maker_bits, task.sequence_bits + index + 1};
}
inline TaskId TaskOf(ObjectId object) {
  return {object.maker_bits, object.sequence_bits & ~uint64_t{0xffff}};
}
// The handle of a detached actor: the actor's id with this index. It is counted nowhere, for such
// an actor lives until it is killed, and it needs no owner: whoever gets one asks the GCS.
inline constexpr uint16_t kDetachedActorIndex = 0xffff;
inline ObjectId DetachedActorHandle(ActorId actor) {
  return {actor.maker_bits, actor.sequence_bits + kDetachedActorIndex};
}
inline bool IsDetachedActorHandle(ObjectId object) {
  return (object.sequence_bits & 0xffff) == kDetachedActorIndex;
}

using JobNumber = uint32_t;    // Given by the GCS, from 1.
using LeaseNumber = uint64_t;  // Given by one raylet, from 1, never reused by it.

}  // namespace sheaf
