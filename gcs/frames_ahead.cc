// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/frames_ahead.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kClientField = proto::GcsRequest::kClientFieldNumber;
static_assert(kClientField == proto::GcsReply::kClientFieldNumber);
static_assert(kClientField == proto::GcsEvent::kClientFieldNumber);

}  // namespace

// Only the top level is read, and of what lies in it only the lengths.
bool GoesAhead(FrameKind kind, std::string_view body) {
  uint32_t heartbeat = 0, followed = 0;
  switch (kind) {
    case FrameKind::kGcsRequest:
      heartbeat = proto::GcsRequest::kHeartbeatFieldNumber;
      followed = proto::GcsRequest::kSubscribeFieldNumber;
      break;
    case FrameKind::kGcsReply:
      heartbeat = proto::GcsReply::kHeartbeatFieldNumber;
      followed = proto::GcsReply::kSnapshotFieldNumber;
      break;
    case FrameKind::kGcsEvent:
      followed = proto::GcsEvent::kDeltaFieldNumber;
      break;
    default:
      return false;
  }
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(body.data()),
                                               static_cast<int>(body.size()));
  uint64_t client = 0;
  bool is_ahead = false;
  while (const uint32_t tag = input.ReadTag()) {
    const auto field = static_cast<uint32_t>(WireFormatLite::GetTagFieldNumber(tag));
    is_ahead |= field == heartbeat || field == followed;
    const bool read = field == kClientField ? input.ReadVarint64(&client)
                                            : WireFormatLite::SkipField(&input, tag);
    if (!read || field == 0) return false;
  }
  return is_ahead && ProcessId::Unpack(client).is_raylet();
}

bool IsSaidAgain(FrameKind kind, std::string_view body) {
  if (kind != FrameKind::kGcsRequest) return false;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(body.data()),
                                               static_cast<int>(body.size()));
  uint64_t sequence = 0;
  while (const uint32_t tag = input.ReadTag()) {
    const auto field = static_cast<uint32_t>(WireFormatLite::GetTagFieldNumber(tag));
    if (field == proto::GcsRequest::kHeartbeatFieldNumber) return true;
    const bool read = field == proto::GcsRequest::kSequenceFieldNumber
                          ? input.ReadVarint64(&sequence)
                          : WireFormatLite::SkipField(&input, tag);
    if (!read) return false;
  }
  return sequence != 0;
}

}  // namespace sheaf
