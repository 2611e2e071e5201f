// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The frames between owners, executors and borrowers: fixed heads, followed by variable parts,
// everything 8-byte aligned. Receivers check every length with WireReader; a frame that does not
// parse is dropped and its sender reported.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/frame.h"
#include "base/ids.h"
#include "object_store/layout.h"

namespace sheaf {

enum class ArgumentKind : uint32_t {
  kValue = 0,  // `bytes` of it follow.
  kStore = 1,  // A StoreArgument follows.
  kPack = 2,   // The same, of an object that is several arguments: ArgumentHead and bytes each.
};
struct ArgumentHead {
  ArgumentKind kind;
  uint32_t bytes;  // Of what follows, without padding.
};
struct StoreArgument {
  ObjectId id;
  ObjectLocation location;
  uint64_t size;
};

// A reference that a value contains: the receiver registers it as a borrower.
struct NestedReference {
  ObjectId id;
  ObjectLocation location;  // A hint, if the sender knows it.
};

// kPushTask: PushTaskHead, arguments (ArgumentHead and bytes each), nested references; what `flags`
// name.
struct PushTaskHead {
  uint64_t task_sequence_bits;  // Of the TaskId; its maker is the sender.
  uint64_t lease;
  uint64_t push;    // 1, 2, ... within the lease, per sender; see kPushOfCreation.
  uint32_t cookie;  // The owner's own name for the task; comes back in replies.
  uint32_t template_number;
  uint32_t attempt;
  uint16_t flags;
  uint16_t parent_tag;  // Of the call that made it; for traces alone (TagOf, base/trace).
  uint32_t argument_bytes;
  uint32_t nested_count;
  // For listings and timelines alone (telemetry/task_events.h).
  uint64_t parent_sequence_bits;  // Of the call that made it; 0: a driver's own.
  uint32_t created_ms;            // Wall time of the owner, modulo 2^32; 0: not known.
  uint32_t reserved_too;
};
static_assert(sizeof(PushTaskHead) == 64);
// The creation of an actor is the first push of its lease (of a detached one, which raylets send,
// push 0), and calls of all senders are numbered behind it: a process that dies in the constructor
// has started none of them.
inline constexpr uint64_t kPushOfCreation = 1;
// A serialized template follows the references; `template_number` means nothing.
inline constexpr uint16_t kTemplateInline = 1;
// A StreamResume follows the references.
inline constexpr uint16_t kStreamResumes = 2;
// A CallName follows the others.
inline constexpr uint16_t kNamed = 4;
struct CallName {
  uint64_t bytes;  // They follow.
};
// A TraceContext follows all else: the span that the call is below.
inline constexpr uint16_t kTraced = 16;
// The caller's memory for values is used up: results go to the store, from
// ReferenceTable::kLeastCounted on. There the one that makes them waits for room.
inline constexpr uint16_t kResultsToStore = 8;

// A stream that runs again: what its consumer lacks. The other items are neither stored nor sent.
struct StreamResume {
  uint64_t from;        // All from this index on; kNoMore: none.
  uint64_t consumed;    // As in StreamAck.
  uint64_t lost_count;  // So many indices below `from` follow, ascending: items that are lost.

  static constexpr uint64_t kNoMore = UINT64_MAX;
};

enum class ReplyStatus : uint8_t {
  kDone = 0,
  kFailed = 1,  // An error, as the only return.
  kFailedRetriable = 2,
};
// kTaskReply: TaskReplyHead, then `return_count` ReturnHeads each followed by its bytes and nested
// references.
struct TaskReplyHead {
  uint64_t task_sequence_bits;
  uint32_t cookie;
  uint32_t attempt;
  uint64_t run_ns;   // Time in user code.
  uint64_t transit;  // Not 0: send kTransitDone{transit} once the nested references are registered.
  uint16_t return_count;
  ReplyStatus status;
  uint8_t keeps_arguments;  // 1: references inside the arguments stay held here; kTransitDone comes
                            // when they are registered.
  uint32_t stream_items;    // Streaming: how many items there are in all.
};
static_assert(sizeof(TaskReplyHead) == 40);

enum class ReturnKind : uint32_t { kValue = 0, kStore = 1, kError = 2 };
struct ReturnHead {
  ReturnKind kind;
  uint32_t bytes;  // kValue: of the value. kStore: 0. kError: of the error text (EncodeError).
  uint32_t nested_count;
  uint32_t reserved;
  ObjectLocation location;  // kStore.
  uint64_t size;            // kStore: bytes of the object.
};
static_assert(sizeof(ReturnHead) == 40);

// kStreamItem: this head, then one ReturnHead with bytes and nested references.
struct StreamItemHead {
  uint64_t task_sequence_bits;
  uint32_t cookie;
  uint32_t attempt;
  uint64_t index;  // From 0.
  uint64_t transit;
  ObjectId stored_as;  // The name of its bytes in the store, if they are there.

  // Items whose id is the task's with an index; later ones get their own.
  static constexpr uint64_t kIndexedItems = 60'000;
};
// kStreamAck, consumer -> executor.
struct StreamAck {
  uint64_t task_sequence_bits;
  uint64_t consumed;  // Items in all.
  uint64_t stop;      // 1: no more are wanted.
};

// kCancelTask: owner -> executor, or any borrower -> owner.
struct CancelTask {
  TaskId task;
  uint32_t force;
  uint32_t recursive;
};

// kTakeBack, owner -> executor: return what has not started of the pushes up to `until`, also of
// those that this overtakes. kTaskReturned, back, one each.
struct TakeBack {
  uint64_t lease;
  uint64_t until;
};
struct TaskReturned {
  uint64_t task_sequence_bits;
  uint64_t push;
  uint32_t cookie;
  uint32_t attempt;
};

// kTransitDone.
struct TransitDone {
  uint64_t transit;  // Of a reply, stream item or answer; 0: of a push, named by the next two.
  uint64_t task_sequence_bits;
  uint32_t cookie;
  uint32_t reserved;
};

// kObjectQuery, borrower -> owner: `count` ObjectIds follow. Each is answered when the object is
// ready; asking again is harmless.
struct ObjectQueryHead {
  uint64_t count;
  uint64_t lost;  // 1: the borrower did not find them where they were said to be.
};
// kObjectAnswer: this head, then one ReturnHead with bytes and nested references.
struct ObjectAnswerHead {
  ObjectId id;
  uint64_t transit;
};

inline constexpr size_t Aligned8(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

// Appends to a frame body, keeping 8-byte alignment.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}
  template <class T>
  void Struct(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Bytes(std::string_view bytes) {
    out_.append(bytes);
    out_.resize(Aligned8(out_.size()));
  }

 private:
  std::string& out_;
};

// Takes a frame body apart; every method returns nullptr, or sets failed(), when it is too short.
class WireReader {
 public:
  explicit WireReader(std::string_view body) : rest_(body) {}
  template <class T>
  const T* Struct() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    if (failed_ || rest_.size() < sizeof(T)) {
      failed_ = true;
      return nullptr;
    }
    const T* out = reinterpret_cast<const T*>(rest_.data());
    rest_.remove_prefix(sizeof(T));
    return out;
  }
  template <class T>
  const T* Structs(size_t count) {
    if (failed_ || count > rest_.size() / sizeof(T)) {
      failed_ = true;
      return nullptr;
    }
    const T* out = reinterpret_cast<const T*>(rest_.data());
    rest_.remove_prefix(count * sizeof(T));
    return out;
  }
  std::string_view Bytes(size_t size) {
    if (failed_ || Aligned8(size) > rest_.size()) {
      failed_ = true;
      return {};
    }
    std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(Aligned8(size));
    return out;
  }
  bool failed() const { return failed_; }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace sheaf
