// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keeps what is asked for; the test answers.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "raylet/objects/block_source.h"

namespace sheaf {

// A block as it arrives, with bytes of its own.
class OwnedBlock final : public ReceivedBlock {
 public:
  OwnedBlock(std::string head, std::string bytes, bool is_cut = false,
             std::optional<uint32_t> sent_crc = std::nullopt)
      : head_(std::move(head)), bytes_(std::move(bytes)), is_cut_(is_cut), sent_crc_(sent_crc) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return bytes_.size(); }
  absl::Status CopyTo(std::span<char> to) override {
    const absl::Status whole = Keep();
    if (!whole.ok()) return whole;
    const uint32_t crc = CopyWithCrc32c(to.data(), bytes_);
    if (crc == sent_crc_.value_or(crc)) return absl::OkStatus();
    return absl::DataLossError("its checksum is wrong");
  }
  absl::Status Keep() override {
    return is_cut_ ? absl::UnavailableError("the connection was cut") : absl::OkStatus();
  }

 private:
  const std::string head_, bytes_;
  const bool is_cut_;                       // Not all of its bytes come.
  const std::optional<uint32_t> sent_crc_;  // Nothing: that of the bytes.
};

class FakeBlockSource final : public BlockSource {
 public:
  struct Asked {
    NodeNumber node = 0;
    std::string request;
    Nanos timeout = 0;
    Done done;
  };
  void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) override {
    asked.push_back({node, std::move(request), timeout, std::move(done)});
  }
  // The oldest question.
  Asked Take() {
    Asked oldest = std::move(asked.front());
    asked.pop_front();
    return oldest;
  }
  std::deque<Asked> asked;
};

}  // namespace sheaf
