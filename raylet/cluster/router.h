// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Carries frames between the processes of this node and the GCS, without reading more of them than
// the address. One thread; Transport outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"

namespace sheaf {

class Router {
 public:
  Router(NodeNumber node, Transport& transport) : node_(node), transport_(transport) {}

  // A kGcsRequest of a process of this node goes on if the GCS is `reachable`, with `client` set to
  // its true sender, whatever it said. false: malformed, not sent.
  bool ToGcs(ProcessId from, std::string_view request, bool reachable = true);
  // To whom a kGcsReply or kGcsEvent is addressed. nullopt: malformed, or to no process of this
  // node.
  std::optional<ProcessId> Addressee(std::string_view message) const;
  // Hands a message of the GCS to a process of this node.
  void ToProcess(ProcessId process, const Frame& frame);

 private:
  const NodeNumber node_;
  Transport& transport_;
};

// The last value of varint field `field` on the top level of a protobuf message, 0 when it is
// absent. nullopt: `message` is not well-formed on its top level, so appended bytes could be read
// as part of another field.
std::optional<uint64_t> FindVarintField(std::string_view message, uint32_t field);
std::string EncodeVarintField(uint32_t field, uint64_t value);

}  // namespace sheaf
