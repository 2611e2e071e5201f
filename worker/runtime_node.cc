// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/limits.h"
#include "worker/runtime_impl.h"

namespace sheaf {

absl::StatusOr<PlacementGroupId> RuntimeImpl::CreateGroup(proto::GroupRequest request) {
  Lock lock(*driver_);
  if (driver_->ended()) return driver_->end();
  return core_->groups.Create(std::move(request), core_->owner.references.NextSequence());
}

absl::Status RuntimeImpl::RemoveGroup(PlacementGroupId group) {
  Lock lock(*driver_);
  if (driver_->ended()) return driver_->end();
  core_->groups.Remove(group);
  driver_->Recheck();  // Other threads may wait for it.
  return absl::OkStatus();
}

absl::StatusOr<proto::GroupState> RuntimeImpl::WaitGroup(PlacementGroupId group, Nanos deadline) {
  Lock lock(*driver_);
  core_->groups.Watch(group);
  const auto message = [&] {
    const proto::GroupState* state = core_->groups.Find(group);
    return state == nullptr ? std::string() : state->message();
  };
  proto::GroupState settled;  // Another thread may remove the group before this one goes on.
  const absl::Status status = driver_->DriveUntil(lock, deadline, [&] {
    const proto::GroupState* state = core_->groups.Find(group);
    if (state == nullptr) {  // Watched above: another thread has removed it.
      settled.set_state(proto::GroupState::REMOVED);
    } else if (PlacementGroups::IsSettled(*state)) {
      settled = *state;
    } else {
      return false;
    }
    return true;
  });
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat("the placement group ", group.ToHex(),
                                                    " was not placed in time. ", message()));
  }
  if (!status.ok()) return status;
  return settled;
}

absl::StatusOr<bool> RuntimeImpl::KeyPut(std::string_view name_space, std::string_view key,
                                         std::string_view value, bool overwrite, KeyLife life,
                                         Nanos deadline) {
  proto::GcsRequest request;
  proto::KvPut& put = *request.mutable_kv_put();
  put.set_name_space(std::string(name_space));
  put.set_key(std::string(key));
  put.set_value(std::string(value));
  put.set_overwrite(overwrite);
  if (life == KeyLife::kOfJob) put.set_owner(job());
  absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  return reply->kv_put().added();
}

absl::StatusOr<bool> RuntimeImpl::KeyOwn(std::string_view name_space,
                                         std::span<const std::string> keys, Nanos deadline) {
  proto::GcsRequest request;
  request.mutable_kv_own()->set_name_space(std::string(name_space));
  for (const std::string& key : keys) request.mutable_kv_own()->add_keys(key);
  request.mutable_kv_own()->set_owner(job());
  absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  return reply->kv_count().count() == keys.size();
}

absl::StatusOr<std::vector<std::optional<std::string>>> RuntimeImpl::KeysGet(
    std::string_view name_space, std::span<const std::string> keys, Nanos deadline) {
  proto::GcsRequest request;
  request.mutable_kv_get()->set_name_space(std::string(name_space));
  for (const std::string& key : keys) request.mutable_kv_get()->add_keys(key);
  absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  std::vector<std::optional<std::string>> values(keys.size());
  auto entry = reply->mutable_kv_values()->mutable_entries()->begin();
  const auto end = reply->mutable_kv_values()->mutable_entries()->end();
  for (size_t i = 0; i < keys.size() && entry != end; ++i) {
    if (entry->key() != keys[i]) continue;
    values[i] = std::move(*entry->mutable_value());
    ++entry;
  }
  return values;
}

absl::StatusOr<std::optional<std::string>> RuntimeImpl::KeyGet(std::string_view name_space,
                                                               std::string_view key,
                                                               Nanos deadline) {
  const std::string keys[] = {std::string(key)};
  absl::StatusOr<std::vector<std::optional<std::string>>> values =
      KeysGet(name_space, keys, deadline);
  if (!values.ok()) return values.status();
  return std::move((*values)[0]);
}

absl::StatusOr<bool> RuntimeImpl::KeyDelete(std::string_view name_space, std::string_view key,
                                            Nanos deadline) {
  proto::GcsRequest request;
  request.mutable_kv_delete()->set_name_space(std::string(name_space));
  request.mutable_kv_delete()->set_key(std::string(key));
  absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  return reply->kv_count().count() != 0;
}

absl::StatusOr<std::vector<std::string>> RuntimeImpl::KeyList(std::string_view name_space,
                                                              std::string_view prefix,
                                                              Nanos deadline) {
  proto::GcsRequest request;
  request.mutable_kv_keys()->set_name_space(std::string(name_space));
  request.mutable_kv_keys()->set_prefix(std::string(prefix));
  absl::StatusOr<proto::GcsReply> reply = AskGcs(std::move(request), deadline);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = ErrorOf(*reply); !status.ok()) return status;
  return std::vector<std::string>(reply->kv_keys().keys().begin(), reply->kv_keys().keys().end());
}

absl::StatusOr<proto::StateAnswer> RuntimeImpl::Query(proto::StateQuery query, Nanos deadline) {
  if (query.id().size() > kMaxNameBytes)
    return TooLarge("an id", query.id().size(), kMaxNameBytes, "no id is so long");
  Lock lock(*driver_);
  const uint64_t request = next_query_++;
  query.set_request(request);
  state_answers_[request].set_request(request);
  SendMessage(core_->raylet(), FrameKind::kStateQuery, query);
  const absl::Status status = driver_->DriveUntil(
      lock, deadline, [&] { return state_answers_[request].request() == UINT64_MAX; });
  proto::StateAnswer answer = std::move(state_answers_[request]);
  state_answers_.erase(request);
  if (absl::IsDeadlineExceeded(status))
    return absl::DeadlineExceededError("the raylet did not answer in time");
  if (!status.ok()) return status;
  if (!answer.error().empty()) return absl::InvalidArgumentError(answer.error());
  answer.set_request(request);
  return answer;
}

std::vector<uint32_t> RuntimeImpl::gpu_ids() const {
  Lock lock(*driver_);
  const auto& ids = core_->executor.lease().gpu_ids();
  return {ids.begin(), ids.end()};
}

proto::LeaseSpec RuntimeImpl::current_lease() const {
  Lock lock(*driver_);
  return core_->executor.lease().spec();
}

}  // namespace sheaf
