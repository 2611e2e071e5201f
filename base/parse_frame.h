// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From the bytes of a frame to the message that its kind promises.
#pragma once

#include <climits>

#include "absl/status/statusor.h"
#include "base/frame.h"

namespace sheaf {

// kInvalidArgument: the body is no `Message`.
template <class Message>
absl::StatusOr<Message> ParseFrame(const Frame& frame) {
  Message message;
  if (frame.body.size() > INT_MAX ||
      !message.ParseFromArray(frame.body.data(), static_cast<int>(frame.body.size()))) {
    return absl::InvalidArgumentError("a frame's body is not the message of its kind");
  }
  return message;
}

}  // namespace sheaf
