// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/inter_node.h"

#include <algorithm>

#include "raylet/fake_block_source.h"
#include "tests/sim/node.h"

namespace sheaf::sim {

void InterNode::Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string body) {
  const Key key{from.node, to.node};
  if (forgotten_.contains(key)) return;
  Stream& stream = streams_[key];
  Nanos delay = world_.Between(50 * kMicrosecond, kMillisecond);
  if (world_.random.OneIn(200)) delay += world_.Between(kMillisecond, 50 * kMillisecond);
  stream.last_at = std::max(stream.last_at, world_.now() + delay);
  stream.sent.push_back({from, to, lane, kind, std::move(body), stream.last_at});
  Schedule(key);
}

void InterNode::Fetch(NodeNumber reader, NodeNumber node, std::string request,
                      BlockSource::Done done) {
  const auto delay = [this] { return world_.Between(100 * kMicrosecond, 5 * kMillisecond); };
  world_.queue.After(delay(), [this, reader, node, delay, request = std::move(request),
                               done = std::move(done)] {
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) return done(absl::UnavailableError("no such node is simulated"));
    found->second->raylet().OnFetch(
        reader, request, [this, delay, done](absl::StatusOr<Block> block) {
          absl::StatusOr<std::unique_ptr<ReceivedBlock>> received =
              absl::UnavailableError("not served");
          if (!block.ok()) {
            received = block.status();
          } else {
            received = std::make_unique<OwnedBlock>(
                block->head, std::string(block->bytes.begin(), block->bytes.end()));
          }
          auto shared =
              std::make_shared<absl::StatusOr<std::unique_ptr<ReceivedBlock>>>(std::move(received));
          world_.queue.After(delay(), [shared, done] { done(std::move(*shared)); });
        });
    found->second->EndTurn();
  });
}

void InterNode::Schedule(Key key) {
  Stream& stream = streams_[key];
  if (stream.scheduled || stream.sent.empty()) return;
  stream.scheduled = true;
  world_.queue.At(stream.sent.front().at, [this, key] {
    streams_[key].scheduled = false;
    Deliver(key);
  });
}

void InterNode::Deliver(Key key) {
  Stream& stream = streams_[key];
  const auto found = nodes_.find(key.second);
  if (found == nodes_.end() || forgotten_.contains({key.second, key.first})) {
    stream.sent.clear();
    return;
  }
  Node& node = *found->second;
  if (node.paused_until > world_.now()) {
    stream.sent.front().at = node.paused_until;
    return Schedule(key);
  }
  const Sent frame = std::move(stream.sent.front());
  stream.sent.pop_front();
  Schedule(key);
  world_.trace.Frame(world_.now(), frame.from, frame.to, frame.kind, frame.body);
  node.raylet().OnRemoteFrame(frame.from, frame.to, frame.lane, {frame.kind, frame.body});
  node.EndTurn();
}

}  // namespace sheaf::sim
