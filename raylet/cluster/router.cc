// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/router.h"

namespace sheaf {
namespace {

constexpr uint32_t kClientField = 1;  // Of GcsRequest, GcsReply and GcsEvent.

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (bytes->empty()) return std::nullopt;
    const uint8_t byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

void AppendVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

}  // namespace

std::optional<uint64_t> FindVarintField(std::string_view message, uint32_t field) {
  uint64_t found = 0;
  while (!message.empty()) {
    const std::optional<uint64_t> tag = TakeVarint(&message);
    if (!tag.has_value() || *tag >> 3 == 0) return std::nullopt;
    size_t skip = 0;
    switch (*tag & 7) {
      case kVarint: {
        const std::optional<uint64_t> value = TakeVarint(&message);
        if (!value.has_value()) return std::nullopt;
        if (*tag >> 3 == field) found = *value;
        break;
      }
      case kFixed64:
        skip = 8;
        break;
      case kFixed32:
        skip = 4;
        break;
      case kBytes: {
        const std::optional<uint64_t> size = TakeVarint(&message);
        if (!size.has_value() || *size > message.size()) return std::nullopt;
        skip = *size;
        break;
      }
      default:
        return std::nullopt;
    }
    if (skip > message.size()) return std::nullopt;
    message.remove_prefix(skip);
  }
  return found;
}

std::string EncodeVarintField(uint32_t field, uint64_t value) {
  std::string out;
  AppendVarint(&out, uint64_t{field} << 3 | kVarint);
  AppendVarint(&out, value);
  return out;
}

bool Router::ToGcs(ProcessId from, std::string_view request, bool reachable) {
  if (!FindVarintField(request, kClientField).has_value()) return false;
  if (!reachable) return true;
  // Of a field that comes twice the last one counts, so what the sender claimed is overruled.
  transport_.To(kGcs).Send(Lane::kControl, FrameKind::kGcsRequest, request,
                           EncodeVarintField(kClientField, from.packed()));
  return true;
}

std::optional<ProcessId> Router::Addressee(std::string_view message) const {
  const std::optional<uint64_t> client = FindVarintField(message, kClientField);
  if (!client.has_value()) return std::nullopt;
  const ProcessId process = ProcessId::Unpack(*client);
  if (process.node != node_) return std::nullopt;
  return process;
}

void Router::ToProcess(ProcessId process, const Frame& frame) {
  transport_.To(process).Send(Lane::kControl, frame.kind, frame.body);
}

}  // namespace sheaf
