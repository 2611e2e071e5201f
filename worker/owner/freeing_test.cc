// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What nothing holds any more is freed: in slices, in constant stack, and never under somebody who
// is just letting go of it.
#include <chrono>

#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace freeing_test {

constexpr size_t kMany = 1'000'000;

double SecondsOf(const std::function<void()>& run) {
  const auto begun = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

TEST_CASE("a chain of a million nested references is freed in slices") {
  Places f;
  ObjectHandle outermost = f.PutHere("v");
  for (size_t i = 1; i < kMany; ++i) outermost = f.PutHere("v", {outermost.entry()});
  f.Collect();
  REQUIRE(f.owner.references.size() == kMany);
  outermost = {};
  size_t slices = 0;
  for (bool more = true; more; ++slices) {
    const size_t before = f.owner.references.size();
    more = f.owner.references.CollectDropped();
    REQUIRE(before - f.owner.references.size() <= ReferenceTable::kSlice);
  }
  CHECK(f.owner.references.size() == 0);
  CHECK(slices <= 3 * kMany / ReferenceTable::kSlice);
}

TEST_CASE("a value with a million references inside lets go of them in slices") {
  Places f;
  std::vector<ObjectEntry*> inside;
  for (size_t i = 0; i < kMany; ++i) {
    ObjectEntry* entry =
        f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
    f.owner.references.AddUse(*entry);
    f.owner.references.SetValue(*entry, "v");
    inside.push_back(entry);
  }
  ObjectEntry* entry =
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
  ObjectHandle list(entry);
  f.owner.references.SetValue(*entry, "list", std::move(inside));
  list = {};
  for (bool more = true; more;) {
    const size_t before = f.owner.references.size();
    more = f.owner.references.CollectDropped();
    REQUIRE(before - f.owner.references.size() <= ReferenceTable::kSlice);
  }
  CHECK(f.owner.references.size() == 0);
}

TEST_CASE("a million dropped handles are looked at in slices") {
  Places f;
  std::vector<ObjectHandle> handles;
  for (size_t i = 0; i < kMany; ++i) handles.push_back(f.PutHere("v"));
  handles.clear();
  f.owner.references.CollectDropped();
  CHECK(f.owner.references.size() >= kMany - ReferenceTable::kSlice);
  f.Collect();
  CHECK(f.owner.references.size() == 0);
}

TEST_CASE("a long lineage is freed in constant stack") {
  Places f;
  const TemplateRecord& step = f.Template(-1);
  ObjectHandle last = f.Step(step, {});
  constexpr size_t kSteps = 100'000;
  for (size_t i = 1; i < kSteps; ++i) {
    last = f.Step(step, {last});
    f.Collect();
    f.transport.sent.clear();
  }
  CHECK(f.owner.references.size() == kSteps);
  last = {};
  f.Collect();
  CHECK(f.owner.references.size() == 0);
  CHECK(f.owner.tasks.size() == 0);
}

TEST_CASE("calls that wait for one another in a long chain end in the error of the first") {
  Places f;
  const TemplateRecord& step = f.Template(0);
  const ObjectHandle first = f.Call(step, {});
  ObjectHandle last = first;
  for (size_t i = 1; i < 200'000; ++i) last = f.Call(step, {last});
  f.Grant(1, kWorker);
  f.Reply(f.TakePush(), "boom", ReplyStatus::kFailed);
  REQUIRE(ObjectState{last.entry()->state} == ObjectState::kError);
  CHECK(last.entry()->extra->error.message == "boom");
}

TEST_CASE("an entry outlives whoever is just dropping its last handle") {
  // The steps of ObjectHandle::Drop one by one, as another thread takes them.
  Places f;
  ObjectHandle handle = f.PutHere("v");
  ObjectEntry* entry = handle.Release();
  f.owner.references.AddUse(*entry);  // A call.
  CHECK(entry->handles.fetch_sub(1) == 1);
  f.owner.references.DropUse(*entry);  // It ends before the entry is in the queue.
  f.Collect();
  REQUIRE(f.owner.references.size() == 1);
  SECTION("and is pushed then") {}
  SECTION("also if another handle came and went meanwhile") {
    {
      const ObjectHandle other(entry);
    }
    f.Collect();
    REQUIRE(f.owner.references.size() == 1);
  }
  entry->drops->Push(entry);
  f.Collect();
  CHECK(f.owner.references.size() == 0);
}

TEST_CASE("the death of a process costs what it touched, not what there is") {
  Places f;
  const auto deaths = [&] {
    for (uint32_t process = 0; process < 2000; ++process) f.Die({1, 100 + process}, 0);
  };
  deaths();
  std::vector<ObjectHandle> borrowed;
  const ProcessId lender{1, 50};
  for (uint64_t i = 1; i <= 100'000; ++i)
    borrowed.emplace_back(f.owner.references.Incoming({ObjectId::Make(lender, i, 1), {}}));
  std::vector<ObjectHandle> travelling;
  for (int i = 0; i < 50'000; ++i) f.owner.transits.Hold(lender, {borrowed[0]});
  // 2,000 walks over 150,000 records take seconds; this takes about a millisecond.
  CHECK(SecondsOf(deaths) < 0.5);
  f.Die(lender, 0);
  CHECK(f.owner.transits.size() == 0);
  size_t asked = 0;
  while (f.transport.Count(FrameKind::kAdoptedQuery) != 0) {
    proto::AdoptedQuery query;
    REQUIRE(query.ParseFromString(f.transport.Take(FrameKind::kAdoptedQuery).body));
    asked += query.ids().size() / sizeof(ObjectId);
  }
  CHECK(asked == borrowed.size());
}

}  // namespace freeing_test
}  // namespace sheaf
