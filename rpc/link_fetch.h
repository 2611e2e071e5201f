// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks over the frames' own stream, for a peer that cannot be dialled: one question, then the
// answer in parts, each written only when no frame waits. Not in the sequence: a lost connection
// ends the fetch.
//
//   kFetch      number (8 bytes), request
//   kFetchPart  FetchPartHeader, then, at offset 0 of part 0, the head (or the reason why not);
//               in all others bytes of the block
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "rpc/links.h"

namespace sheaf {

struct FetchPartHeader {
  uint64_t number = 0;
  uint32_t code = 0;         // 0, or an absl::StatusCode: no block, and why.
  uint32_t text_bytes = 0;   // In the first part: of the head or the reason, which follow.
  uint64_t total_bytes = 0;  // Of the block.
  uint64_t offset = 0;       // In the block, of the bytes that follow the text.
  uint32_t crc = 0;          // Of the block's bytes up to the end of this part.
  uint32_t unused = 0;
};
static_assert(sizeof(FetchPartHeader) == 40);

inline constexpr uint32_t kMaxFetchTextBytes = 64 * 1024;
inline constexpr uint64_t kMaxFetchedBytes = uint64_t{1} << 30;

std::string EncodeFetch(uint64_t number, std::string_view request);
// The number and the request. kInvalidArgument: too short.
absl::StatusOr<std::pair<uint64_t, std::string_view>> ParseFetch(std::string_view payload);

// The answering end: `block` in parts.
class BlockParts {
 public:
  BlockParts(uint64_t number, absl::StatusOr<Block> block);
  struct Part {
    std::string front;
    std::string_view bytes;            // Behind it.
    std::shared_ptr<const void> hold;  // Of `bytes`.
  };
  bool done() const { return done_; }
  Part Next();  // Not when done.

 private:
  FetchPartHeader header_;
  std::string text_;
  std::string_view bytes_;
  std::shared_ptr<const void> hold_;
  bool first_ = true, done_ = false;
};

// The asking end: the parts of one block.
class BlockAssembly {
 public:
  // The number of the fetch that a part belongs to. kInvalidArgument: not a part.
  static absl::StatusOr<FetchPartHeader> Parse(std::string_view payload);
  // Takes the next part. kInvalidArgument: it does not follow the one before.
  absl::Status Add(const FetchPartHeader& header, std::string_view payload);
  bool complete() const { return begun_ && received_ == total_; }
  // Once it is complete. kDataLoss: its checksum is wrong.
  absl::StatusOr<std::unique_ptr<ReceivedBlock>> Take();

 private:
  bool begun_ = false;
  absl::Status reason_;
  std::string head_;
  std::unique_ptr<char[]> bytes_;
  uint64_t total_ = 0, received_ = 0;
  uint32_t crc_ = 0, sent_crc_ = 0;  // Of what came, and what it was when it was sent.
};

}  // namespace sheaf
