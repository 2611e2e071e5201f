// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whom a borrower asks for a value, and how often.
#include "worker/owner/owner_questions.h"

#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace owner_questions_test {

constexpr ProcessId kOwner{2, 5};

struct Questions {
  FakeClock clock;
  RecordingTransport transport;
  MapStore store;
  ReferenceTable references{kSelf, transport, store};
  OwnerQuestions questions{kSelf, clock, transport, references};

  ObjectHandle Borrow(uint64_t number) {
    return ObjectHandle(references.Incoming({ObjectId::Make(kOwner, number, 1), {}}));
  }
  // How many ids the owner, or the raylet, was asked about, in how many frames.
  std::pair<size_t, size_t> Asked(ProcessId whom, FrameKind kind) {
    std::pair<size_t, size_t> asked;
    for (const Sent& frame : transport.Take(whom)) {
      if (frame.kind != kind) continue;
      ++asked.second;
      if (kind == FrameKind::kObjectQuery) {
        asked.first += FrameHead<ObjectQueryHead>(frame.body)->count;
      } else {
        proto::AdoptedQuery query;
        REQUIRE(query.ParseFromString(frame.body));
        asked.first += query.ids().size() / sizeof(ObjectId);
      }
    }
    return asked;
  }
};

TEST_CASE("an owner is asked again in ever longer pauses, about all of its objects at once") {
  Questions q;
  const ObjectHandle first = q.Borrow(1), second = q.Borrow(2);
  q.questions.Ask(*first.entry(), false);
  q.questions.Ask(*second.entry(), false);
  CHECK(q.Asked(kOwner, FrameKind::kObjectQuery) == std::pair<size_t, size_t>{2, 2});
  const Nanos next = q.questions.Tick();
  CHECK(next == q.clock.Now() + kSecond);
  CHECK(q.Asked(kOwner, FrameKind::kObjectQuery).second == 0);
  q.clock.Advance(kSecond);
  CHECK(q.questions.Tick() == q.clock.Now() + 2 * kSecond);
  CHECK(q.Asked(kOwner, FrameKind::kObjectQuery) == std::pair<size_t, size_t>{2, 1});
  q.questions.Forget(first.id());
  CHECK_FALSE(q.questions.IsAsked(first.id()));
  q.clock.Advance(2 * kSecond);
  CHECK(q.questions.Tick() == q.clock.Now() + 4 * kSecond);
  CHECK(q.Asked(kOwner, FrameKind::kObjectQuery) == std::pair<size_t, size_t>{1, 1});
}

TEST_CASE("when the owner is dead the raylet is asked, each second") {
  Questions q;
  const ObjectHandle object = q.Borrow(1);
  q.questions.Ask(*object.entry(), false);
  q.transport.Take(kOwner);
  q.questions.OnProcessDied(kOwner);
  CHECK(q.questions.IsDead(kOwner));
  CHECK(q.Asked(kRaylet, FrameKind::kAdoptedQuery) == std::pair<size_t, size_t>{1, 1});
  for (int i = 0; i < 3; ++i) {
    q.clock.Advance(kSecond);
    CHECK(q.questions.Tick() == q.clock.Now() + kSecond);
    CHECK(q.Asked(kRaylet, FrameKind::kAdoptedQuery) == std::pair<size_t, size_t>{1, 1});
    CHECK(q.Asked(kOwner, FrameKind::kObjectQuery).second == 0);
  }
  q.references.SetValue(*object.entry(), "here");
  q.clock.Advance(kSecond);
  CHECK(q.questions.Tick() == kForever);
  CHECK_FALSE(q.questions.IsAsked(object.id()));
}

}  // namespace owner_questions_test
}  // namespace sheaf
