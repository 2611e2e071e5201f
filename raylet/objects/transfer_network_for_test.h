// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: several nodes in one thread, each with a real store, puller and server, joined by a
// network that the test bends.
#pragma once

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "object_store/store_node_for_test.h"
#include "raylet/objects/fake_block_source.h"
#include "raylet/objects/object_puller.h"
#include "raylet/objects/object_server.h"

namespace sheaf {

inline constexpr uint64_t kChunk = 64 * 1024;

struct TransferNetwork;

// A node: a store, and who fetches for it and serves from it.
struct TransferNode final : BlockSource {
  TransferNode(TransferNetwork& network, NodeNumber number, uint64_t capacity)
      : network(network),
        number(number),
        store(capacity, {.node = number}),
        puller(Options(number), {.clock = store.clock,
                                 .store = *store.server,
                                 .blocks = *this,
                                 .loop = store.loop,
                                 .copier = copier}),
        server({.clock = store.clock, .store = *store.server, .puller = puller}) {
    process = store.Attach(1);
  }
  static ObjectPullerOptions Options(NodeNumber number) {
    ObjectPullerOptions options;
    options.node = number;
    options.chunk_bytes = kChunk;
    return options;
  }
  void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) override;
  Nanos LastAnswer(NodeNumber node) const override;

  ObjectLocation Put(ObjectId id, std::string_view bytes, uint32_t attempt = 0,
                     std::span<const ObjectId> nested = {}) {
    ObjectSpec spec;
    spec.attempt = attempt;
    spec.nested = nested;
    spec.flags = 5;
    auto location = store.Put(process, id, bytes, spec);
    REQUIRE(location.ok());
    store.Flush();
    return *location;
  }
  std::string Read(ObjectId id) {
    const auto location = store.Lookup(process, id);
    if (!location.ok()) return std::string(location.status().message());
    const auto object = store.store(process).Get(id, *location);
    REQUIRE(object.ok());
    return std::string(object->bytes.view());
  }
  // nullopt: not finished.
  std::optional<LookupOutcome> Outcome(ObjectId id) {
    for (const auto& finished : puller.TakeFinished()) outcomes[finished.id] = finished.outcome;
    const auto found = outcomes.find(id);
    return found == outcomes.end() ? std::nullopt : std::optional(found->second);
  }

  TransferNetwork& network;
  const NodeNumber number;
  InlineExecutor copier;
  StoreNode store;
  ObjectPuller puller;
  ObjectServer server;
  ProcessId process;
  std::map<ObjectId, LookupOutcome> outcomes;
};

struct TransferNetwork {
  struct Request {
    NodeNumber from, to;
    std::string body;
    Nanos timeout;
    BlockSource::Done done;
    Nanos due;
  };

  TransferNode& Add(NodeNumber number, uint64_t capacity = 32 * kMiB) {
    return *(places[number] = std::make_unique<TransferNode>(*this, number, capacity));
  }
  Nanos NowOf(NodeNumber node) const { return places.at(node)->store.clock.Now(); }
  // Answers one request; false: none waits, or its time has not come.
  bool Step() {
    if (requests.empty() || NowOf(requests.front().from) < requests.front().due) return false;
    Request request = std::move(requests.front());
    requests.pop_front();
    ++carried;
    if (silent.contains(request.to)) {
      unanswered.push_back(std::move(request));
      return true;
    }
    if (carried % 7 == 0 && lose_each_seventh) {
      request.done(absl::DeadlineExceededError("lost"));
      return true;
    }
    if (cut.contains({request.from, request.to}) || !places.contains(request.to)) {
      request.done(absl::UnavailableError("no connection"));
      return true;
    }
    served[request.to] += 1;
    places.at(request.to)
        ->server.OnFetch(request.from, request.body, [this, request](absl::StatusOr<Block> block) {
          if (!block.ok()) return request.done(block.status());
          std::string bytes(block->bytes.data(), block->bytes.size());
          const uint32_t crc = Crc32c(bytes);
          if (damage > 0 && !bytes.empty()) {
            --damage;
            bytes[bytes.size() / 2] ^= 1;
          }
          if (truncate > 0 && !bytes.empty()) {
            --truncate;
            bytes.pop_back();
          }
          const bool is_cut = interrupt > 0 && !bytes.empty();
          if (is_cut) --interrupt;
          request.done(std::make_unique<OwnedBlock>(block->head, std::move(bytes), is_cut, crc));
        });
    return true;
  }
  // Until nothing moves; then time passes, `limit` at most, while somebody has something to do.
  void Run(Nanos limit = 60 * kSecond) {
    for (Nanos passed = 0; passed <= limit; passed += 10 * kMillisecond) {
      for (bool moved = true; moved;) {
        moved = false;
        for (auto& [number, place] : places) place->store.Settle();
        while (Step()) moved = true;
      }
      bool busy = false;
      for (auto& [number, place] : places) {
        busy |= place->puller.NextTick() != kForever ||
                place->store.server->Stats().waiting_requests != 0;
      }
      if (!busy) return;
      for (auto& [number, place] : places) {
        place->store.Advance(10 * kMillisecond);
        place->puller.Tick();
        place->server.Tick();
      }
    }
  }

  std::deque<Request> requests;
  std::map<NodeNumber, std::unique_ptr<TransferNode>> places;
  std::set<std::pair<NodeNumber, NodeNumber>> cut;
  std::map<NodeNumber, int> served;  // Requests that each answered.
  std::set<NodeNumber> silent;       // What they are asked comes into `unanswered`.
  std::deque<Request> unanswered;
  std::map<NodeNumber, Nanos> last_answers;
  Nanos latency = 0;  // From a question to its answer.
  int carried = 0;
  bool lose_each_seventh = false;
  int damage = 0, truncate = 0, interrupt = 0;  // So many answers.
};

inline void TransferNode::Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) {
  network.requests.push_back({number, node, std::move(request), timeout, std::move(done),
                              store.clock.Now() + network.latency});
}

inline Nanos TransferNode::LastAnswer(NodeNumber node) const {
  const auto found = network.last_answers.find(node);
  return found == network.last_answers.end() ? 0 : found->second;
}

}  // namespace sheaf
