// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/execution.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/limits.h"
#include "worker/owner/task_table.h"

namespace sheaf {
namespace {

// Values up to here travel in the frame of the reply.
size_t InlineBytesOf(const PushTaskHead& head) {
  return (head.flags & kResultsToStore) != 0 ? ReferenceTable::kLeastCounted - 1 : kInlineValue;
}
// The same, while the owner takes nothing.
constexpr size_t kInlineBytesBehind = 256;

constexpr size_t kKeptBytes = 4096;  // Memory of strings that a cleared call keeps.

void EncodeReturn(std::string& out, ReturnHead head, std::string_view bytes,
                  std::span<const NestedReference> nested) {
  out.clear();
  out.reserve(sizeof head + Aligned8(bytes.size()) + nested.size() * sizeof(NestedReference));
  head.bytes = static_cast<uint32_t>(bytes.size());
  head.nested_count = static_cast<uint32_t>(nested.size());
  WireWriter writer(out);
  writer.Struct(head);
  writer.Bytes(bytes);
  for (const NestedReference& reference : nested) writer.Struct(reference);
}

}  // namespace

void CallExecution::Clear() {
  actor_id = {};
  cancel_requested.store(false, std::memory_order_relaxed);
  held.clear();
  stream_sent = stream_consumed = missing_from_ = 0;
  unconsumed_.clear();
  unconsumed_bytes_ = 0;
  lost_ = {};
  stream_stopped.store(false, std::memory_order_relaxed);
  discarded = false;
  if (trace_.is_set()) [[unlikely]]
    trace_ = inner_trace = {};
  started = began = 0;
  function = weight = thread = 0;
  hold_ticket = unasked_bytes = ahead_bytes = stored_bytes_ = 0;
  waits_ahead = false;
  group = nullptr;
  previous_running = next_running = nullptr;
  spec_.reset();
  for (std::string* bytes : {&frame_, &first_}) {
    bytes->clear();
    if (bytes->capacity() > kKeptBytes) bytes->shrink_to_fit();
  }
  name_ = {};
  arguments_.clear();
  stored_.clear();
  packs_ = 0;
  pack_is_malformed_ = false;
  pins_.clear();
  inline_bytes_ = 0;
  nested_references_ = {};
  more_.clear();
  returned_nested_.clear();
  status_ = ReplyStatus::kDone;
  failure_ = {};
}

bool CallExecution::Begin(ProcessId from, std::shared_ptr<const proto::TaskTemplate> spec,
                          std::string_view frame) {
  owner = from;
  spec_ = std::move(spec);
  frame_.assign(frame);
  WireReader in(frame_);
  const auto* head = in.Struct<PushTaskHead>();
  if (head == nullptr || head->argument_bytes % 8 != 0) return false;
  const std::string_view arguments = in.Bytes(head->argument_bytes);
  const auto* nested = in.Structs<NestedReference>(head->nested_count);
  if (in.failed()) return false;
  nested_references_ = {nested, head->nested_count};
  if ((head->flags & kStreamResumes) != 0) {
    const auto* resume = in.Struct<StreamResume>();
    const auto* lost = resume == nullptr ? nullptr : in.Structs<uint64_t>(resume->lost_count);
    if (lost == nullptr) return false;
    missing_from_ = resume->from;
    stream_consumed = resume->consumed;
    lost_ = {lost, resume->lost_count};
  }
  if ((head->flags & kNamed) != 0) {
    const auto* named = in.Struct<CallName>();
    if (named == nullptr) return false;
    name_ = in.Bytes(named->bytes);
    if (in.failed()) return false;
  }
  if ((head->flags & kTraced) != 0) {
    const auto* trace = in.Struct<TraceContext>();
    if (trace == nullptr) return false;
    trace_ = inner_trace = *trace;
  }
  WireReader rest(arguments);
  while (!rest.rest().empty()) {
    const auto* argument = rest.Struct<ArgumentHead>();
    if (argument == nullptr) return false;
    const std::string_view bytes = rest.Bytes(argument->bytes);
    if (rest.failed()) return false;
    if (argument->kind == ArgumentKind::kValue) {
      arguments_.push_back({bytes, {}, {}, {}, {}});
    } else if ((argument->kind == ArgumentKind::kStore || argument->kind == ArgumentKind::kPack) &&
               bytes.size() == sizeof(StoreArgument)) {
      const bool pack = argument->kind == ArgumentKind::kPack;
      packs_ += pack;
      const auto* stored = reinterpret_cast<const StoreArgument*>(bytes.data());
      stored_bytes_ += std::min(stored->size, UINT64_MAX - stored_bytes_);
      stored_.push_back({stored, arguments_.size(), pack});
      arguments_.emplace_back();
    } else {
      return false;
    }
  }
  return true;
}

std::vector<const StoreArgument*> CallExecution::store_arguments() const {
  std::vector<const StoreArgument*> out;
  out.reserve(stored_.size());
  for (const Stored& stored : stored_) out.push_back(stored.argument);
  return out;
}

void CallExecution::SetArgument(const StoreArgument* from, ObjectView view) {
  // They lie in the frame in the order of the list.
  const auto found = std::lower_bound(
      stored_.begin(), stored_.end(), from,
      [](const Stored& stored, const StoreArgument* sought) { return stored.argument < sought; });
  if (found != stored_.end() && found->argument == from) {
    arguments_[found->index] = std::move(view);
  }
}

void CallExecution::DropArguments() {
  if (stored_.empty()) [[likely]]
    return;
  arguments_.clear();
  pins_.clear();
}

bool CallExecution::Unpack() {
  if (std::exchange(packs_, 0) == 0) [[likely]]
    return !pack_is_malformed_;
  std::vector<ObjectView> whole;
  size_t next = 0;  // Of the arguments.
  const auto take_up_to = [&](size_t end) {
    for (; next < end; ++next) whole.push_back(std::move(arguments_[next]));
  };
  for (const Stored& stored : stored_) {
    if (!stored.pack) continue;
    take_up_to(stored.index);
    pins_.push_back(std::move(arguments_[next++]));
    WireReader in(pins_.back().bytes);
    while (!in.rest().empty()) {
      const auto* head = in.Struct<ArgumentHead>();
      const std::string_view bytes = head == nullptr ? std::string_view{} : in.Bytes(head->bytes);
      if (in.failed() || head->kind != ArgumentKind::kValue) {
        pack_is_malformed_ = true;
        return false;
      }
      // Small, so what is read from it is copied, as from a frame.
      whole.push_back({bytes, {}, {}, {}, {}});
    }
  }
  take_up_to(arguments_.size());
  arguments_ = std::move(whole);
  return true;
}

absl::Status CallExecution::Return(size_t index, std::string_view bytes,
                                   std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  ReturnHead head{};
  std::vector<NestedReference> references;
  if (!nested.empty()) {
    references = host_.Outgoing(nested);
    returned_nested_.insert(returned_nested_.end(), nested.begin(), nested.end());
  }
  const ObjectId id = ReturnOf(task(), static_cast<uint16_t>(index));
  std::optional<ObjectLocation> stored;
  if (bytes.size() > InlineBytesOf(this->head()) || inline_bytes_ + bytes.size() > kInlineSum) {
    auto location = host_.StoreValue(id, attempt(), bytes, nested);
    if (!location.ok()) return location.status();
    stored = *location;
  } else if (bytes.size() > kInlineBytesBehind) {
    stored = host_.StoreIfBehind(*this, id, bytes, nested);
  }
  if (stored) {
    head.kind = ReturnKind::kStore;
    head.location = *stored;
    head.size = bytes.size();
  }
  if (!stored) inline_bytes_ += bytes.size();
  EncodeReturn(ReturnAt(index), head, stored ? std::string_view() : bytes, references);
  return absl::OkStatus();
}

absl::StatusOr<MutableBuffer> CallExecution::CreateReturn(size_t index, size_t size,
                                                          std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  return host_.CreateValue(ReturnOf(task(), static_cast<uint16_t>(index)), attempt(), size, nested);
}

absl::Status CallExecution::ReturnBuffer(size_t index, MutableBuffer buffer,
                                         std::span<const ObjectHandle> nested) {
  ReturnHead head{};
  head.kind = ReturnKind::kStore;
  head.size = buffer.size();
  head.location = host_.SealValue(std::move(buffer));
  std::vector<NestedReference> references;
  if (!nested.empty()) {
    references = host_.Outgoing(nested);
    returned_nested_.insert(returned_nested_.end(), nested.begin(), nested.end());
  }
  EncodeReturn(ReturnAt(index), head, {}, references);
  return absl::OkStatus();
}

std::string& CallExecution::ReturnAt(size_t index) {
  if (index == 0) return first_;
  if (more_.size() < index) more_.resize(index);
  return more_[index - 1];
}

void CallExecution::Fail(Error error, bool retriable) {
  status_ = retriable ? ReplyStatus::kFailedRetriable : ReplyStatus::kFailed;
  CutError(&error);
  ReturnHead head{};
  head.kind = ReturnKind::kError;
  EncodeReturn(first_, head, EncodeError(error), {});
  failure_ = std::move(error);
  more_.clear();
  returned_nested_.clear();
}

void CallExecution::FailFrom(size_t first, Error error) {
  if (first == 0) return Fail(std::move(error), false);
  CutError(&error);
  ReturnHead head{};
  head.kind = ReturnKind::kError;
  const std::string text = EncodeError(error);
  for (size_t i = first; i < spec_->num_returns(); ++i) EncodeReturn(ReturnAt(i), head, text, {});
}

bool CallExecution::HasRoom() const {
  if (stream_stopped.load(std::memory_order_relaxed) || cancelled() || stream_sent <= missing_from_)
    return true;
  const int64_t items = spec_->max_unconsumed();
  const int64_t bytes = spec_->max_unconsumed_bytes();
  return (items <= 0 || stream_sent < stream_consumed + static_cast<uint64_t>(items)) &&
         (bytes <= 0 || unconsumed_bytes_ < static_cast<uint64_t>(bytes));
}

void CallExecution::NoteSent(uint64_t bytes) {
  if (spec_->max_unconsumed_bytes() <= 0) return;
  unconsumed_.push_back({stream_sent, bytes});
  unconsumed_bytes_ += bytes;
}

void CallExecution::NoteConsumed(uint64_t items) {
  stream_consumed = std::max(stream_consumed, items);
  std::erase_if(unconsumed_, [&](const Unconsumed& item) {
    if (item.index >= stream_consumed) return false;
    unconsumed_bytes_ -= item.bytes;
    return true;
  });
}

absl::Status CallExecution::Yield(std::string_view bytes, std::span<const ObjectHandle> nested) {
  const absl::Status sent = YieldItem(bytes, nested);
  // Its consumer must not take what it has for the whole.
  if (absl::IsCancelled(sent) && cancelled())
    Fail({ErrorKind::kTaskCancelled, std::string(name()) + " was cancelled while it ran", {}},
         false);
  return sent;
}

absl::Status CallExecution::YieldItem(std::string_view bytes,
                                      std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  const absl::Status over = absl::CancelledError("nobody wants more items");
  if (stream_stopped.load(std::memory_order_relaxed) || cancelled()) return over;
  const bool had_before = stream_sent < missing_from_;
  if (had_before && (lost_.empty() || lost_.front() != stream_sent)) {
    ++stream_sent;
    return ConsumerHasAll() ? over : absl::OkStatus();
  }
  ReturnHead head{};
  std::vector<NestedReference> references;
  if (!nested.empty()) references = host_.Outgoing(nested);
  std::string item;
  StreamItemHead item_head{};
  item_head.task_sequence_bits = this->head().task_sequence_bits;
  item_head.cookie = this->head().cookie;
  item_head.attempt = attempt();
  item_head.stored_as = {};
  std::string value;
  if (bytes.size() <= InlineBytesOf(this->head())) {
    EncodeReturn(value, head, bytes, references);
  } else {
    // Under the item's own id the consumer owns it, and may free it.
    item_head.stored_as = stream_sent < StreamItemHead::kIndexedItems
                              ? ReturnOf(task(), static_cast<uint16_t>(stream_sent + 1))
                              : host_.NextStoredName();
    auto location = host_.StoreValue(item_head.stored_as, attempt(), bytes, nested);
    if (!location.ok()) return location.status();
    head.kind = ReturnKind::kStore;
    head.location = *location;
    head.size = bytes.size();
    EncodeReturn(value, head, {}, references);
  }
  item.append(AsBytes(item_head));
  item.append(value);
  if (absl::Status sent = host_.SendItem(*this, item, nested); !sent.ok()) return sent;
  if (had_before) lost_ = lost_.subspan(1);
  return ConsumerHasAll() ? over : absl::OkStatus();
}

void CallExecution::SendReply(Channel& owner_channel, uint64_t run_ns, uint64_t transit,
                              bool keeps_arguments) {
  const size_t returns = spec_->streaming() ? 0 : std::max<uint32_t>(1, spec_->num_returns());
  if (status_ == ReplyStatus::kDone && returns != 0) {
    if (first_.empty() || more_.size() + 1 < returns) {
      Fail({ErrorKind::kSystem,
            absl::StrCat(spec_->name(), " ended without a result; ", returns, " are declared"),
            {}},
           false);
    }
  }
  size_t size = first_.size();
  for (const std::string& more : more_) size += more.size();
  if (size > kMaxSentBytes) {
    Fail({ErrorKind::kInvalidArgument,
          std::string(TooLarge(absl::StrCat("what ", std::string(name()), " returned"), size,
                               kMaxSentBytes,
                               "its results hold too many references: return fewer at once")
                          .message()),
          {}},
         false);
  }
  TaskReplyHead reply{};
  reply.task_sequence_bits = head().task_sequence_bits;
  reply.cookie = head().cookie;
  reply.attempt = attempt();
  reply.run_ns = run_ns;
  reply.transit = transit;
  reply.return_count = static_cast<uint16_t>(1 + more_.size());
  reply.status = status_;
  reply.keeps_arguments = keeps_arguments;
  reply.stream_items = static_cast<uint32_t>(stream_sent);
  for (const std::string& more : more_) first_.append(more);
  owner_channel.Send(Lane::kControl, FrameKind::kTaskReply, AsBytes(reply), first_);
}

}  // namespace sheaf
