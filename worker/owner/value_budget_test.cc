// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values in a process's own memory: how many bytes of them there may be, and which of them get a
// copy in the store.
#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace value_budget_test {

// A store that may have no room.
class FullStore final : public LocalStore {
 public:
  bool Has(const ObjectLocation&) override { return false; }
  void Free(ObjectId id, ObjectLocation) override { freed.push_back(id); }
  ObjectLocation Promote(ObjectId id, std::string_view, std::span<const ObjectId>) override {
    ++tried;
    if (!room) return {};
    stored.push_back(id);
    return {1, static_cast<uint32_t>(stored.size()), 1, 0};
  }
  bool room = false;
  int tried = 0;
  std::vector<ObjectId> stored, freed;
};

struct Budget {
  RecordingTransport transport;
  FullStore store;
  ReferenceTable table{kSelf, transport, store};
  ObjectHandle Value(size_t bytes) {
    ObjectEntry* entry = table.NewOwned(ObjectId::Make(kSelf, table.NextSequence(), 1));
    ObjectHandle handle(entry);
    table.SetValue(*entry, std::string(bytes, 'v'));
    return handle;
  }
  void Collect() {
    while (table.CollectDropped()) {
    }
  }
};

TEST_CASE("values beyond the budget of a process go to the store") {
  Budget b;
  b.store.room = true;
  b.table.set_value_budget(100'000);
  std::vector<ObjectHandle> handles;
  for (int i = 0; i < 50; ++i) {
    CHECK(b.table.HasRoomFor(10'000) == (i < 10));
    handles.push_back(b.Value(10'000));
  }
  CHECK(b.table.value_bytes() == 100'000);
  CHECK(b.store.stored.size() == 40);
  CHECK(ObjectState{handles[9].entry()->state} == ObjectState::kValue);
  CHECK(ObjectState{handles[10].entry()->state} == ObjectState::kStore);
  CHECK(handles[10].entry()->size == 10'000);
  THEN("very small ones do not: a place in the store is no smaller") {
    CHECK(b.table.HasRoomFor(100));
    CHECK(ObjectState{b.Value(100).entry()->state} == ObjectState::kValue);
  }
  THEN("what is freed makes room") {
    handles.clear();
    b.Collect();
    CHECK(b.table.value_bytes() == 0);
    CHECK(b.store.freed.size() == 40);
  }
}

TEST_CASE("what found no room in the store is moved there later, unless somebody looks at it") {
  Budget b;
  b.table.set_value_budget(10'000);
  const ObjectHandle first = b.Value(10'000);
  const ObjectHandle viewed = b.Value(10'000);
  const ObjectHandle moved = b.Value(10'000);
  viewed.entry()->viewed = true;
  CHECK(b.table.value_bytes() == 30'000);
  CHECK(b.table.unpromoted() != 0);
  b.store.tried = 0;
  CHECK(b.table.PromoteAgain());
  CHECK(b.store.tried == 1);  // There is no room: it need not be asked for each.
  b.store.room = true;
  CHECK(b.table.PromoteAgain());
  CHECK(b.table.unpromoted() == 0);
  CHECK(ObjectState{viewed.entry()->state} == ObjectState::kValue);
  CHECK(viewed.entry()->location.known());
  CHECK(ObjectState{moved.entry()->state} == ObjectState::kStore);
  CHECK(b.table.value_bytes() == 20'000);
}

TEST_CASE("a value whose reference left before there was room gets its copy when there is some") {
  Budget b;
  const ObjectHandle value = b.Value(5);
  CHECK_FALSE(b.table.Outgoing(*value.entry()).location.known());
  b.table.Outgoing(*value.entry());
  b.store.room = true;
  CHECK(b.table.PromoteAgain());
  CHECK(b.store.stored == std::vector{value.id()});
  CHECK(b.table.Outgoing(*value.entry()).location.known());
  CHECK(ObjectState{value.entry()->state} == ObjectState::kValue);
}

TEST_CASE("a value that only lineage holds wants no copy in the store any more") {
  Budget b;
  ObjectHandle value = b.Value(5);
  ObjectEntry* entry = value.entry();
  b.table.Outgoing(*entry);
  b.table.AddUse(*entry);
  b.table.UseForLineage(*entry);
  value = {};
  b.Collect();
  CHECK(entry->value == "vvvvv");
  CHECK(b.table.lineage_value_bytes() == 5);
  CHECK(b.table.unpromoted() == 0);
  b.table.DropLineageUse(*entry);
  b.Collect();
  CHECK(b.table.size() == 0);
  CHECK(b.table.lineage_value_bytes() == 0);
}

TEST_CASE("when the budget is used up, calls are told to leave their results in the store") {
  Places f;
  f.owner.references.set_value_budget(200'000);
  const auto first = f.PutHere(std::string(60'000, 'v'));
  const ObjectHandle a = f.Submit(f.Template());
  f.Grant();
  PushTaskHead push = f.TakePush();
  CHECK((push.flags & kResultsToStore) == 0);
  f.Reply(push, "1");
  auto second = f.PutHere(std::string(60'000, 'v'));
  const auto third = f.PutHere(std::string(60'000, 'v'));
  const ObjectHandle b = f.Submit(f.Template());
  push = f.TakePush();
  CHECK((push.flags & kResultsToStore) != 0);
  f.Reply(push, "2");
  second = {};
  f.Collect();
  const ObjectHandle c = f.Submit(f.Template());
  CHECK((f.TakePush().flags & kResultsToStore) == 0);
}

TEST_CASE("a value that is freed while it waits for room is not promoted") {
  Budget b;
  {
    const ObjectHandle value = b.Value(5);
    b.table.Outgoing(*value.entry());
  }
  b.Collect();
  CHECK(b.table.size() == 0);
  CHECK(b.table.unpromoted() == 0);
}

}  // namespace value_budget_test
}  // namespace sheaf
