// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/gcs_link.h"

#include <algorithm>
#include <utility>

#include "base/error_kind.h"

namespace sheaf {

GcsLink::Open& GcsLink::Add(proto::GcsRequest request) {
  const uint64_t sequence = ++last_sequence_;
  request.set_client(client_.packed());
  request.set_sequence(sequence);
  Open& open = open_[sequence];
  open.request = std::move(request);
  return open;
}

void GcsLink::Command(proto::GcsRequest request, Done done) {
  Open& open = Add(std::move(request));
  open.done = std::move(done);
  Send(open);
}

void GcsLink::Insist(proto::GcsRequest request, Done done) {
  Open& open = Add(std::move(request));
  open.done = std::move(done);
  open.insists = true;
  Send(open);
}

void GcsLink::Describe(std::function<void(proto::GcsRequest*)> fill) {
  open_.erase(description_);
  description_ = ++last_sequence_;
  Open& open = open_[description_];
  open.request.set_client(client_.packed());
  open.request.set_sequence(description_);
  open.fill = std::move(fill);
  Send(open);
}

void GcsLink::Report(proto::GcsRequest request) {
  if (!up_) return;
  request.set_client(client_.packed());
  request.clear_sequence();
  SendMessage(transport_.To(kGcs), FrameKind::kGcsRequest, request);
}

void GcsLink::OnReply(const proto::GcsReply& reply) {
  const auto it = open_.find(reply.sequence());
  if (it == open_.end()) return;
  Open answered = std::move(it->second);
  open_.erase(it);
  if (answered.insists && reply.error() == static_cast<uint32_t>(ErrorKind::kGcsStorageFull)) {
    Open& again = Add(std::move(answered.request));  // Under a new number: this one has its answer.
    again.insists = true;
    again.done = std::move(answered.done);
    again.pause = answered.pause;
    again.send_again_at = Deadline(clock_.Now(), std::max(answered.pause, kResendAfter));
    return;
  }
  if (answered.done) answered.done(reply);
}

void GcsLink::Tick() {
  for (auto& [sequence, open] : open_) {
    if (clock_.Now() >= open.send_again_at) Send(open);
  }
}

// How things are now goes behind what has happened until now.
void GcsLink::ResendAll() {
  std::function<void(proto::GcsRequest*)> fill;
  if (const auto it = open_.find(description_); it != open_.end()) {
    fill = std::move(it->second.fill);
    open_.erase(it);
  }
  for (auto& [sequence, open] : open_) {
    open.pause = 0;
    Send(open);
  }
  if (fill) Describe(std::move(fill));
}

void GcsLink::Send(Open& open) {
  if (!up_) return;
  open.pause = open.pause == 0 ? kResendAfter : std::min(2 * open.pause, kLongestPause);
  open.send_again_at = Deadline(clock_.Now(), open.pause);
  if (open.fill) open.fill(&open.request);
  open.request.set_confirmed_up_to(open_.begin()->first - 1);
  SendMessage(transport_.To(kGcs), FrameKind::kGcsRequest, open.request);
}

}  // namespace sheaf
