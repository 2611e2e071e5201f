// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/object_server.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace sheaf {
namespace {

constexpr Nanos kReaderMemory = 2 * kSecond;
constexpr int kMostNamed = 8;
// As many chunks as the largest object can have: no request makes this node send more at once.
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

proto::BlockHead::Outcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return proto::BlockHead::DATA_LOSS;
    case absl::StatusCode::kResourceExhausted:
      return proto::BlockHead::FULL;
    case absl::StatusCode::kOutOfRange:
      return proto::BlockHead::OUT_OF_RANGE;
    case absl::StatusCode::kUnavailable:
      return proto::BlockHead::NOT_YET;
    default:
      return proto::BlockHead::NOT_FOUND;
  }
}

void Describe(const StoreObjectInfo& info, proto::BlockHead* head) {
  head->set_attempt(info.attempt);
  head->set_flags(info.flags);
  head->set_size_bytes(info.size_bytes);
  head->set_nested_count(static_cast<uint32_t>(info.nested.size()));
}

}  // namespace

void ObjectServer::OnFetch(NodeNumber reader, std::string_view body, Respond respond) {
  proto::BlockRequest request;
  const bool parsed = request.ParseFromArray(body.data(), static_cast<int>(body.size()));
  const absl::StatusOr<ObjectId> id = ObjectId::FromBinary(request.id());
  if (!parsed || !id.ok() || request.length() > kMostBytes) {
    ++counts_.refused;
    return respond(absl::InvalidArgumentError("a request for a block that cannot be read"));
  }
  proto::BlockHead head;
  if (request.part()) return OnPart(*id, request, std::move(respond));
  NameOthers(*id, reader, &head);
  if (std::optional<ObjectPuller::Part> part = deps_.puller.FindPart(request, *id)) {
    deps_.puller.AddPeer(*id, reader);
    *part->head.mutable_also_at() = head.also_at();
    if (part->head.outcome() != proto::BlockHead::FOUND) return SendWhy(part->head, respond);
    return Send(std::move(part->head), part->bytes, std::move(part->hold), respond);
  }
  deps_.store.Pin(
      *id, HintOf(request),
      [this, request, head,
       respond = std::move(respond)](absl::StatusOr<StoreServer::Pinned> pinned) mutable {
        if (pinned.ok() && !request.any_attempt() && pinned->info.attempt != request.attempt()) {
          pinned = absl::NotFoundError("another attempt of it is here");
        }
        if (!pinned.ok()) {
          head.set_outcome(OutcomeOf(pinned.status()));
          return SendWhy(std::move(head), respond);
        }
        Describe(pinned->info, &head);
        const uint64_t from = std::min<uint64_t>(request.offset(), pinned->bytes.size());
        const uint64_t length = std::min<uint64_t>(request.length(), pinned->bytes.size() - from);
        Send(std::move(head), pinned->bytes.subspan(from, length), std::move(pinned->hold),
             respond);
      });
}

// Who reads a part has no copy of the object, so others are not told of it; and where the object is
// only arriving there is no part of it yet.
void ObjectServer::OnPart(ObjectId id, const proto::BlockRequest& request, Respond respond) {
  std::optional<uint32_t> attempt;
  if (!request.any_attempt()) attempt = request.attempt();
  deps_.store.PinRange(
      id, HintOf(request), attempt, request.offset(), request.length(),
      [this, respond = std::move(respond)](absl::StatusOr<StoreServer::Pinned> pinned) {
        proto::BlockHead head;
        if (!pinned.ok()) {
          head.set_outcome(OutcomeOf(pinned.status()));
          return SendWhy(std::move(head), respond);
        }
        Describe(pinned->info, &head);
        Send(std::move(head), pinned->bytes, std::move(pinned->hold), respond);
      });
}

ObjectLocation ObjectServer::HintOf(const proto::BlockRequest& request) const {
  ObjectLocation hint{.node = deps_.store.node()};
  if (request.has_slot()) {
    hint.slot = request.slot();
    hint.generation = request.generation();
  }
  return hint;
}

void ObjectServer::Send(proto::BlockHead head, std::span<const char> bytes,
                        std::shared_ptr<const void> hold, const Respond& respond) {
  ++counts_.blocks;
  counts_.bytes += bytes.size();
  respond(Block{.head = head.SerializeAsString(), .bytes = bytes, .hold = std::move(hold)});
}

void ObjectServer::SendWhy(proto::BlockHead head, const Respond& respond) {
  ++counts_.refused;
  respond(Block{.head = head.SerializeAsString(), .bytes = {}, .hold = nullptr});
}

void ObjectServer::NameOthers(ObjectId id, NodeNumber reader, proto::BlockHead* head) {
  const Nanos now = deps_.clock.Now();
  absl::btree_map<NodeNumber, Nanos>& readers = readers_[id];
  readers[reader] = now;
  for (const auto& [node, asked_at] : readers) {
    if (node == reader || now - asked_at > kReaderMemory) continue;
    head->add_also_at(node);
    if (head->also_at_size() == kMostNamed) return;
  }
}

void ObjectServer::Tick() {
  const Nanos now = deps_.clock.Now();
  if (now < next_sweep_) return;
  next_sweep_ = now + kReaderMemory;
  for (auto object = readers_.begin(); object != readers_.end();) {
    absl::erase_if(object->second,
                   [&](const auto& entry) { return now - entry.second > kReaderMemory; });
    object = object->second.empty() ? readers_.erase(object) : std::next(object);
  }
}

}  // namespace sheaf
