// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the ranks of a group on several nodes tell each other over their links (peer_links.h), as
// plain structs: one program runs on all nodes, and all of them are little endian.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "collective/communicator.h"

namespace sheaf {

// kCall: the sender has entered its collective operation number `sequence`, from 1.
struct NetCallRecord {
  uint64_t sequence = 0;
  uint64_t count = 0;
  uint8_t kind = 0;
  uint8_t type = 0;
  uint8_t op = 0;
  uint8_t unused = 0;
  int32_t peer = 0;
};
// kMessage: the sender's message number `sequence` to the receiver, from 1. Its bytes follow here
// if they are few, else by the bulk transport once the receiver awaits them.
struct MessageRecord {
  uint64_t sequence = 0;
  uint64_t count = 0;
  uint8_t type = 0;
  uint8_t inlined = 0;
  uint8_t unused[6] = {};
};
// kTaken: the receiver has the messages up to this one.
struct TakenRecord {
  uint64_t sequence = 0;
};
// kFailure: the group has ended for the sender; words follow.
struct FailureRecord {
  uint32_t code = 0;
  int32_t culprit = -1;
};
// kPing asks for a kPong; kLeave says the same without a question.
struct PingRecord {
  uint64_t id = 0;
};
struct StateRecord {
  uint64_t id = 0;
  uint64_t entered = 0;  // Collective operations.
  uint64_t finished = 0;
};

template <class T>
std::string EncodeRecord(const T& record, std::string_view more = {}) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string out(reinterpret_cast<const char*>(&record), sizeof record);
  return out.append(more);
}
// False: too short. `more`, if given, gets what follows; else nothing may follow.
template <class T>
bool DecodeRecord(std::string_view bytes, T* record, std::string_view* more = nullptr) {
  if (bytes.size() < sizeof *record || (more == nullptr && bytes.size() != sizeof *record)) {
    return false;
  }
  std::memcpy(record, bytes.data(), sizeof *record);
  if (more != nullptr) *more = bytes.substr(sizeof *record);
  return true;
}

}  // namespace sheaf
