// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The answers of the GCS that say no.
#pragma once

#include <string>
#include <utility>

#include "base/error_kind.h"
#include "proto/gcs.pb.h"

namespace sheaf {

inline proto::GcsReply ErrorReply(ErrorKind kind, std::string message) {
  proto::GcsReply reply;
  reply.set_error(static_cast<uint32_t>(kind));
  reply.set_message(std::move(message));
  return reply;
}

}  // namespace sheaf
