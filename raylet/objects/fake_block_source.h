// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keeps what is asked for; the test answers.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "raylet/objects/block_source.h"

namespace sheaf {

// A block as it arrives, with bytes of its own.
class OwnedBlock final : public ReceivedBlock {
 public:
  OwnedBlock(std::string head, std::string bytes)
      : head_(std::move(head)), bytes_(std::move(bytes)) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return bytes_.size(); }
  uint32_t CopyTo(std::span<char> to) const override { return CopyWithCrc32c(to.data(), bytes_); }

 private:
  const std::string head_, bytes_;
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
