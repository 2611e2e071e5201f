// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_fetch.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "rpc/link_wire.h"

namespace sheaf {
namespace {

class WholeBlock final : public ReceivedBlock {
 public:
  WholeBlock(std::string head, std::unique_ptr<char[]> bytes, uint64_t size)
      : head_(std::move(head)), bytes_(std::move(bytes)), size_(size) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return size_; }
  absl::Status CopyTo(std::span<char> to) override {
    std::copy_n(bytes_.get(), std::min<size_t>(size_, to.size()), to.data());
    return absl::OkStatus();
  }

 private:
  const std::string head_;
  const std::unique_ptr<char[]> bytes_;
  const uint64_t size_;
};

}  // namespace

std::string EncodeFetch(uint64_t number, std::string_view request) {
  std::string out(reinterpret_cast<const char*>(&number), sizeof number);
  return out.append(request);
}

absl::StatusOr<std::pair<uint64_t, std::string_view>> ParseFetch(std::string_view payload) {
  uint64_t number = 0;
  if (payload.size() < sizeof number) {
    return absl::InvalidArgumentError(absl::StrCat("a fetch of ", payload.size(), " bytes"));
  }
  std::memcpy(&number, payload.data(), sizeof number);
  return std::pair(number, payload.substr(sizeof number));
}

BlockParts::BlockParts(uint64_t number, absl::StatusOr<Block> block) {
  header_.number = number;
  if (block.ok() &&
      (block->head.size() > kMaxFetchTextBytes || block->bytes.size() > kMaxFetchedBytes)) {
    block = absl::InvalidArgumentError(absl::StrCat(
        "a block of ", block->bytes.size(), " bytes with a head of ", block->head.size(),
        "; the limits are ", kMaxFetchedBytes, " and ", kMaxFetchTextBytes));
  }
  if (block.ok()) {
    text_ = std::move(block->head);
    bytes_ = {block->bytes.data(), block->bytes.size()};
    hold_ = std::move(block->hold);
    header_.total_bytes = bytes_.size();
  } else {
    header_.code = static_cast<uint32_t>(block.status().raw_code());
    text_ = std::string(block.status().message().substr(0, kMaxFetchTextBytes));
  }
  header_.text_bytes = static_cast<uint32_t>(text_.size());
}

BlockParts::Part BlockParts::Next() {
  Part part;
  if (!first_) {
    header_.text_bytes = 0;
    part.bytes = bytes_.substr(header_.offset, kPieceBytes - sizeof header_);
    part.hold = hold_;
    header_.crc = Crc32c(part.bytes, header_.crc);
  }
  part.front.assign(reinterpret_cast<const char*>(&header_), sizeof header_);
  if (std::exchange(first_, false)) part.front.append(text_);
  header_.offset += part.bytes.size();
  done_ = header_.offset == bytes_.size();
  if (done_) hold_ = nullptr;
  return part;
}

absl::StatusOr<FetchPartHeader> BlockAssembly::Parse(std::string_view payload) {
  FetchPartHeader header;
  if (payload.size() < sizeof header) {
    return absl::InvalidArgumentError(
        absl::StrCat("a part of a block has ", payload.size(), " bytes"));
  }
  std::memcpy(&header, payload.data(), sizeof header);
  return header;
}

absl::Status BlockAssembly::Add(const FetchPartHeader& header, std::string_view payload) {
  const std::string_view rest = payload.substr(sizeof header);
  if (!begun_) {
    if (header.offset != 0 || header.text_bytes != rest.size() || header.code > 16 ||
        header.total_bytes > kMaxFetchedBytes || (header.code != 0 && header.total_bytes != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a block begins with a part of ", payload.size(), " bytes at ", header.offset, ", code ",
          header.code, ", ", header.total_bytes, " bytes in all"));
    }
    begun_ = true;
    if (header.code == 0) {
      head_ = std::string(rest);
    } else {
      reason_ = absl::Status(static_cast<absl::StatusCode>(header.code),
                             absl::string_view(rest.data(), rest.size()));
    }
    total_ = header.total_bytes;
    // Pages that were not written to cost nothing.
    if (total_ > 0) bytes_.reset(new char[total_]);
    return absl::OkStatus();
  }
  if (header.offset != received_ || header.text_bytes != 0 || rest.empty() ||
      rest.size() > total_ - received_) {
    return absl::InvalidArgumentError(absl::StrCat(rest.size(), " bytes at ", header.offset,
                                                   " of a block of ", total_, " of which ",
                                                   received_, " came"));
  }
  crc_ = CopyWithCrc32c(bytes_.get() + received_, rest, crc_);
  sent_crc_ = header.crc;
  received_ += rest.size();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReceivedBlock>> BlockAssembly::Take() {
  if (!reason_.ok()) return reason_;
  if (crc_ != sent_crc_) {
    return absl::DataLossError(absl::StrCat("a block of ", total_, " bytes has checksum ", crc_,
                                            ", and was sent with ", sent_crc_));
  }
  return std::make_unique<WholeBlock>(std::move(head_), std::move(bytes_), total_);
}

}  // namespace sheaf
