// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where pieces of objects come from: other raylets. Real: over the node's links; tests: a fake.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "rpc/links.h"

namespace sheaf {

class BlockSource {
 public:
  using Done = std::function<void(absl::StatusOr<std::unique_ptr<ReceivedBlock>>)>;

  virtual ~BlockSource() = default;
  // Asks the raylet of `node`, which answers through its ObjectServer. Calls `done` once, on any
  // thread, maybe at once. kUnavailable: no connection; kDeadlineExceeded: no answer in `timeout`.
  virtual void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) = 0;
  // When something of an answer of `node` came last, to whatever question; 0: never. Those that wait
  // may be in line behind it.
  virtual Nanos LastAnswer(NodeNumber) const { return 0; }
};

// Of a node that has no links.
class NoBlocks final : public BlockSource {
 public:
  void Fetch(NodeNumber, std::string, Nanos, Done done) override {
    done(absl::UnavailableError("this node has no connections to others"));
  }
};

class LinkBlocks final : public BlockSource {
 public:
  // `links` outlives it.
  LinkBlocks(NodeNumber self, Links& links) : self_(RayletOf(self)), links_(links) {}
  void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) override {
    links_.Fetch(self_, RayletOf(node), std::move(request), timeout, std::move(done));
  }
  Nanos LastAnswer(NodeNumber node) const override { return links_.last_block(RayletOf(node)); }

 private:
  const ProcessId self_;
  Links& links_;
};

}  // namespace sheaf
