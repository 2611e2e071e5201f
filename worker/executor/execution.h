// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One call inside a worker: its arguments as they came, its results as they go. The TaskExecutor
// queues these; the language's TaskHandler sees them as Execution.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/owner/task_record.h"
#include "worker/runtime.h"
#include "worker/wire.h"

namespace sheaf {

struct ConcurrencyGroup;  // worker/executor/task_executor.h

// What a call needs of the process it runs in. Thread-safe; implemented by the runtime.
class ExecutionHost {
 public:
  virtual ~ExecutionHost() = default;
  // Memory of the store for the value `id`, waiting for room. kResourceExhausted: none came.
  virtual absl::StatusOr<MutableBuffer> CreateValue(ObjectId id, uint32_t attempt, size_t size,
                                                    std::span<const ObjectHandle> nested) = 0;
  // A result of `call`, as StoreValue does it, if so much is on its way to the owner that no bulk
  // shall follow (back_pressure.h), and room comes.
  virtual std::optional<ObjectLocation> StoreIfBehind(const class CallExecution& call, ObjectId id,
                                                      std::string_view bytes,
                                                      std::span<const ObjectHandle> nested) = 0;
  // The same, copied and sealed.
  virtual absl::StatusOr<ObjectLocation> StoreValue(ObjectId id, uint32_t attempt,
                                                    std::string_view bytes,
                                                    std::span<const ObjectHandle> nested) = 0;
  virtual ObjectLocation SealValue(MutableBuffer buffer) = 0;
  // The references as they travel.
  virtual std::vector<NestedReference> Outgoing(std::span<const ObjectHandle> nested) = 0;
  // Sends one item of a stream, waiting for the consumer where the template says so.
  virtual absl::Status SendItem(class CallExecution& call, const std::string& item,
                                std::span<const ObjectHandle> nested) = 0;
  // A name for a value of this process that is stored on behalf of another.
  virtual ObjectId NextStoredName() = 0;
  // The last copy of the call went: answers its owner and deletes it.
  virtual void Ended(class CallExecution* call) = 0;
};

class CallExecution final : public Execution {
 public:
  explicit CallExecution(ExecutionHost& host) : host_(host) {}
  // Makes it the call that `frame` describes; false: malformed. Only a new or Cleared one may
  // begin.
  bool Begin(ProcessId owner, std::shared_ptr<const proto::TaskTemplate> spec,
             std::string_view frame);
  // What handlers copy and keep, once for each Begin; when the last copy goes, on any thread, the
  // host's Ended is called. The count of the copies is kept inside the call, so that a call that
  // begins costs no allocation.
  std::shared_ptr<CallExecution> Share() {
    return {this, [](CallExecution*) {}, CountInside<CallExecution>{this}};
  }
  // Empty again; keeps its memory, for the next Begin.
  void Clear();

  const PushTaskHead& head() const { return *reinterpret_cast<const PushTaskHead*>(frame_.data()); }
  std::span<const NestedReference> nested_references() const { return nested_references_; }
  bool has_store_arguments() const { return !stored_.empty(); }
  uint64_t stored_bytes() const { return stored_bytes_; }  // Of these, together.
  std::vector<const StoreArgument*> store_arguments() const;
  void SetArgument(const StoreArgument* from, ObjectView view);
  // Once all arguments are set: packs become the arguments that they hold. False: one is malformed.
  bool Unpack();

  TaskId task() const override { return {owner.packed(), head().task_sequence_bits}; }
  ActorId actor() const override { return actor_id; }
  const proto::TaskTemplate& spec() const override { return *spec_; }
  std::string_view name() const override { return name_.empty() ? spec_->name() : name_; }
  bool has_own_name() const { return !name_.empty(); }
  uint32_t attempt() const override { return head().attempt; }
  CallOrigin origin() const override { return {task(), attempt(), inner_trace}; }
  const TraceContext& trace() const { return trace_; }  // As its caller sent it.
  size_t argument_count() const override { return arguments_.size(); }
  const ObjectView& argument(size_t index) const override { return arguments_[index]; }
  void DropArguments() override;
  absl::Status Return(size_t index, std::string_view bytes,
                      std::span<const ObjectHandle> nested) override;
  absl::StatusOr<MutableBuffer> CreateReturn(size_t index, size_t size,
                                             std::span<const ObjectHandle> nested) override;
  absl::Status ReturnBuffer(size_t index, MutableBuffer buffer,
                            std::span<const ObjectHandle> nested) override;
  void Fail(Error error, bool retriable) override;
  void FailFrom(size_t first, Error error) override;
  absl::Status Yield(std::string_view bytes, std::span<const ObjectHandle> nested) override;
  bool cancelled() const override { return cancel_requested.load(std::memory_order_relaxed); }

  // `run_ns` and `keeps_arguments` are the executor's to say.
  void SendReply(Channel& owner_channel, uint64_t run_ns, uint64_t transit, bool keeps_arguments);
  // An item of so many bytes goes out, as number stream_sent; the consumer has taken so many. Under
  // the runtime's lock, as HasRoom.
  void NoteSent(uint64_t bytes);
  void NoteConsumed(uint64_t items);
  // Whether a streaming call may send its next item: few enough, and few enough bytes, are
  // unconsumed, or nobody waits.
  // The first that nobody has yet goes in any case: what was consumed before a run began may have
  // been told to the one before it.
  bool HasRoom() const;
  // Nobody wants more items: the consumer said so, or is dead. Under the runtime's lock.
  bool IsOver() const {
    return discarded || stream_stopped.load(std::memory_order_relaxed) || cancelled();
  }
  bool succeeded() const { return status_ == ReplyStatus::kDone; }
  const Error& failure() const { return failure_; }
  std::vector<ObjectHandle> TakeReturnedNested() { return std::move(returned_nested_); }

  ProcessId owner;
  ActorId actor_id;
  std::atomic<bool> cancel_requested{false};
  // References inside the arguments: one use each. Under the runtime's lock.
  std::vector<ObjectEntry*> held;
  uint64_t stream_sent = 0;  // Items so far, with those that were left out. Of the yielding thread.
  uint64_t stream_consumed = 0;  // Under the runtime's lock.
  std::atomic<bool> stream_stopped{false};
  bool discarded = false;  // No reply is wanted: the owner is gone, or it was returned.
  Nanos started = 0;       // Of tasks: owners are told how long they ran.
  // Of its event (telemetry/event_writer.h). Weight 0: it is only counted.
  Nanos began = 0;
  uint16_t function = 0, weight = 0, thread = 0;
  TraceContext inner_trace{};  // Of origin().
  // Of ArgumentHolds: under which number it has asked, or what it holds without. 0: neither.
  uint64_t hold_ticket = 0, unasked_bytes = 0;
  uint64_t ahead_bytes = 0;                   // Asked for while it is queued, from other nodes.
  bool waits_ahead = false;                   // There was no room to ask for them yet.
  ConcurrencyGroup* group = nullptr;          // Set when it starts.
  CallExecution* previous_running = nullptr;  // The executor's list.
  CallExecution* next_running = nullptr;

 private:
  absl::Status YieldItem(std::string_view bytes, std::span<const ObjectHandle> nested);

  // The allocator of the shared pointers' control block: its memory is `count_`, and giving that
  // back, the last thing that they ever do, is the end of the call.
  template <class T>
  struct CountInside {
    using value_type = T;
    explicit CountInside(CallExecution* call) : call(call) {}
    template <class U>
    CountInside(const CountInside<U>& other) : call(other.call) {}
    T* allocate(size_t) {
      static_assert(sizeof(T) <= sizeof(call->count_) && alignof(T) <= alignof(std::max_align_t));
      return reinterpret_cast<T*>(call->count_);
    }
    void deallocate(T*, size_t) { call->host_.Ended(call); }
    friend bool operator==(const CountInside&, const CountInside&) = default;
    CallExecution* call;
  };

  ExecutionHost& host_;
  alignas(std::max_align_t) unsigned char count_[64];
  std::shared_ptr<const proto::TaskTemplate> spec_;
  std::string frame_;
  std::string_view name_;  // In it: of this call, if not the template's.
  TraceContext trace_;
  std::vector<ObjectView> arguments_;
  struct Stored {
    const StoreArgument* argument;  // In `frame_`.
    size_t index;                   // Of the argument.
    bool pack;
  };
  std::vector<Stored> stored_;
  uint64_t stored_bytes_ = 0;
  size_t packs_ = 0;  // Of `stored_`, to be unpacked.
  bool pack_is_malformed_ = false;
  std::vector<ObjectView> pins_;  // Of packs that were unpacked.
  std::span<const NestedReference> nested_references_;
  struct Unconsumed {
    uint64_t index;
    uint64_t bytes;
  };
  std::vector<Unconsumed> unconsumed_;  // Items, where their bytes are bounded; in order.
  uint64_t unconsumed_bytes_ = 0;
  // Streams: what the consumer lacks.
  bool ConsumerHasAll() const { return lost_.empty() && missing_from_ == StreamResume::kNoMore; }
  uint64_t missing_from_ = 0;
  std::span<const uint64_t> lost_;  // Of those before: what was not sent yet.
  // Results, encoded: the usual single one in `first_`, others by index.
  std::string& ReturnAt(size_t index);
  std::string first_;
  size_t inline_bytes_ = 0;  // Of the values in it and in `more_`.
  std::vector<std::string> more_;
  std::vector<ObjectHandle> returned_nested_;
  ReplyStatus status_ = ReplyStatus::kDone;
  Error failure_;  // What Fail was given.
};

}  // namespace sheaf
