// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/loopback.h"

#include <utility>

namespace sheaf {

void Loopback::Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) {
  std::deque<Waiting>& queue = lanes_[static_cast<int>(lane)];
  queue.push_back({kind, std::string(head).append(tail)});
  bytes_ += queue.back().cost();
  sent_(lane);
}

void Loopback::HandOver(absl::FunctionRef<void(const Frame&)> take) {
  for (size_t left = lanes_[0].size() + lanes_[1].size(); left != 0; --left) {
    std::deque<Waiting>& control = lanes_[static_cast<int>(Lane::kControl)];
    std::deque<Waiting>& queue = control.empty() ? lanes_[static_cast<int>(Lane::kWork)] : control;
    const Waiting next = std::move(queue.front());
    queue.pop_front();
    bytes_ -= next.cost();
    take({next.kind, next.body});
  }
}

}  // namespace sheaf
