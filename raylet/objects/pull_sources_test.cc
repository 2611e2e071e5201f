// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which node is asked next for a piece of an object, and which not any more.
#include "raylet/objects/pull_sources.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace sheaf {
namespace pull_sources_test {

struct Sources {
  Sources() { options.node = 1; }
  ObjectPullerOptions options;
  PullSources sources{options};

  // The node that is asked for `chunk`; 0: none.
  NodeNumber Asked(size_t chunk, Nanos now) {
    const auto choice = sources.ForChunk(
        [&](const PullSource& source) {
          return source.MayHave(chunk) ? std::optional(chunk) : std::nullopt;
        },
        now);
    return choice ? choice->source->node : 0;
  }
  proto::BlockHead Partial(const std::string& chunks) const {
    proto::BlockHead head;
    head.set_outcome(proto::BlockHead::NOT_YET);
    head.set_partial(true);
    head.set_chunk_bytes(options.chunk_bytes);
    head.set_chunks(chunks);
    return head;
  }
};

SCENARIO("sources are other nodes, each once, and not too many") {
  Sources s;
  s.sources.Add(1, false);
  s.sources.Add(0, false);
  CHECK(s.sources.empty());
  s.sources.Add(2, false);
  s.sources.Add(2, true);
  CHECK_FALSE(s.sources.Find(2)->partial);
  for (NodeNumber node = 3; node < 40; ++node) s.sources.Add(node, true);
  CHECK(s.sources.Find(17) != nullptr);
  CHECK(s.sources.Find(18) == nullptr);
}

SCENARIO("who failed waits ever longer, and others are asked first") {
  Sources s;
  s.sources.Add(2, false);
  s.sources.Add(3, false);
  CHECK(s.sources.Failed(2, absl::UnavailableError("away"), 0) == PullSources::Verdict::kRetry);
  CHECK(s.sources.NextRetry(0) == s.options.first_retry);
  CHECK(s.sources.ForFirst(0)->node == 3);
  CHECK(s.sources.ForFirst(s.options.first_retry)->node == 3);
  Nanos wait = 0;
  for (int i = 0; i < 20; ++i) {
    s.sources.Failed(2, absl::UnavailableError("away"), 0);
    const Nanos longer = s.sources.Find(2)->retry_at;
    CHECK(longer >= wait);
    wait = longer;
  }
  CHECK(wait == s.options.last_retry);
  CHECK(s.sources.Failed(2, absl::NotFoundError("gone"), 0) == PullSources::Verdict::kDropped);
  CHECK(s.sources.Find(2) == nullptr);
}

SCENARIO("what is short says nothing of the speed of who gave it") {
  Sources s;
  s.options.chunk_bytes = GENERATE(64 << 10, 4 << 20);
  const uint64_t long_enough = std::min<uint64_t>(s.options.chunk_bytes, 1 << 20);
  s.sources.Add(2, false);
  s.sources.Came(2, long_enough - 1, kMillisecond);
  CHECK(s.sources.Find(2)->speed == 0);
  s.sources.Came(2, long_enough, kSecond);
  CHECK(s.sources.Find(2)->speed == long_enough);
  s.sources.Came(2, 300, kSecond);
  CHECK(s.sources.Find(2)->speed == long_enough);
  s.sources.Came(9, long_enough, kSecond);  // It was dropped meanwhile.
}

SCENARIO("who gives damaged bytes again and again is dropped for it") {
  Sources s;
  s.sources.Add(2, false);
  for (uint32_t i = 1; i < s.options.most_damaged; ++i)
    CHECK(s.sources.Failed(2, absl::DataLossError("x"), 0) == PullSources::Verdict::kRetry);
  CHECK(s.sources.Failed(2, absl::DataLossError("x"), 0) == PullSources::Verdict::kDamaged);
  CHECK(s.sources.empty());
}

SCENARIO("who has only a part is asked first for what it has, and looked at again for more") {
  Sources s;
  s.sources.Add(2, false);
  proto::BlockHead head;
  head.set_outcome(proto::BlockHead::FOUND);
  head.add_also_at(3);
  CHECK(s.sources.Heed(2, head, 0));
  REQUIRE(s.sources.Find(3) != nullptr);
  CHECK(s.sources.Heed(3, s.Partial("\x01"), 0));
  CHECK(s.Asked(0, 0) == 3);
  CHECK(s.Asked(1, 0) == 2);
  CHECK(s.Asked(0, 0) == 2);  // It had nothing new: it is left alone for a moment,
  CHECK(s.Asked(0, s.options.look_again) == 3);  // and may have anything then.
  s.sources.Find(3)->in_flight = 2;
  CHECK(s.Asked(0, s.options.look_again) == 2);
}

SCENARIO("a chunk that comes slowly is better had from another, if one is likely to be faster") {
  constexpr uint64_t kSize = 4 << 20;
  Sources s;
  s.sources.Add(2, false);
  s.sources.Add(3, false);
  const auto better = [&](uint64_t arrived, uint64_t speed) {
    return s.sources.OtherIsFaster(
        {.node = 2, .chunk = 1, .size = kSize, .arrived = arrived, .speed = speed}, 0);
  };
  CHECK(better(1 << 20, 100'000));  // 30 s more, and nothing is known of the other.
  CHECK_FALSE(better(1 << 20, 1'000'000));
  CHECK_FALSE(better(3 << 20, 90'000));  // As fast, the other takes longer.
  CHECK_FALSE(better(0, 0));             // No answer yet: nor might the other have one.
  PullSource& other = *s.sources.Find(3);
  other.speed = 10'000'000;
  CHECK(better(3 << 20, 90'000));
  CHECK(better(0, 0));
  CHECK_FALSE(better(3 << 20, 200'000));
  other.speed = 200'000;
  CHECK_FALSE(better(0, 0));
  CHECK_FALSE(better(1 << 20, 100'000));  // 31 s, and 21 s of the other.
  CHECK(better(1 << 20, 50'000));
  GIVEN("one that has only a part") {
    other.partial = true;
    CHECK_FALSE(better(1 << 20, 1));
    other.chunks = "\x01";
    CHECK_FALSE(better(1 << 20, 1));
    other.chunks = "\x02";
    CHECK(better(1 << 20, 1));
  }
  GIVEN("one that failed just now") {
    s.sources.Failed(3, absl::UnavailableError("away"), -kSecond);
    CHECK_FALSE(better(1 << 20, 1));
  }
  GIVEN("one that was left for another itself") {
    s.sources.Slow(3, 0);
    CHECK_FALSE(better(1 << 20, 1));
  }
}

SCENARIO("who was too slow is asked last for a while") {
  Sources s;
  s.sources.Add(2, false);
  s.sources.Add(3, false);
  s.sources.Slow(2, 0);
  s.sources.Find(3)->in_flight = 3;
  s.sources.Find(3)->failures = 1;
  CHECK(s.Asked(0, 0) == 3);
  CHECK(s.sources.ForFirst(0)->node == 3);
  CHECK(s.Asked(0, s.options.slow_for) == 2);
  s.sources.Drop(3);
  CHECK(s.Asked(0, 0) == 2);
  CHECK(s.sources.ForFirst(0)->node == 2);
}

SCENARIO("who has nothing to give is dropped, with what it says of others kept") {
  Sources s;
  s.sources.Add(2, false);
  proto::BlockHead head;
  head.set_outcome(proto::BlockHead::NOT_FOUND);
  head.add_also_at(3);
  CHECK_FALSE(s.sources.Heed(2, head, 0));
  CHECK(s.sources.Find(2) == nullptr);
  CHECK(s.sources.Find(3)->partial);
}

}  // namespace pull_sources_test
}  // namespace sheaf
