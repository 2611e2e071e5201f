// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The bytes of a connection for blocks, which shares the port of the links with gRPC. Little endian.
//
//   asking end     kBlockMagic, in the open, by which the port tells it from gRPC; then, under TLS
//                  where nodes have certificates, Greeting
//   answering end  the proof that it is the other end of the link that Greeting names
//   then in turn
//   asking end     QuestionHeader, request
//   answering end  AnswerHeader, text (the head of the block, or the reason why there is none),
//                  bytes and, behind them, their BlockCrc if there are any
//
// The checksum comes last so that who answers makes it of each piece as that leaves, while the
// processor has it in its cache.
//
// What comes from the other end is checked here or by FetchSession before anybody looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rpc/fetch_session.h"
#include "rpc/security/hmac.h"

namespace sheaf {

// Neither HTTP/2 nor TLS begins so.
inline constexpr std::string_view kBlockMagic = "SHBLOCK2";

inline constexpr uint32_t kMaxQuestionBytes = 128 * 1024;
inline constexpr uint32_t kMaxAnswerTextBytes = 1 << 20;
inline constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;

struct Greeting {
  uint64_t connection = 0;  // Of the link, whose handshake both drew a key from.
  Digest nonce{};
};
static_assert(sizeof(Greeting) == 40);

struct QuestionHeader {
  FetchTicket ticket;
  uint32_t request_bytes = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(QuestionHeader) == 88);

struct AnswerHeader {
  uint32_t code = 0;        // 0, or an absl::StatusCode: no block, and why.
  uint32_t text_bytes = 0;  // That follow.
  uint64_t bytes = 0;       // Of the block; they follow the text.
};
static_assert(sizeof(AnswerHeader) == 16);

using BlockCrc = uint32_t;  // Crc32c.

inline bool IsSound(const AnswerHeader& header) {
  return header.code <= 16 && header.text_bytes <= kMaxAnswerTextBytes &&
         header.bytes <= kMaxBlockBytes && (header.code == 0 || header.bytes == 0);
}

template <class T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace sheaf
