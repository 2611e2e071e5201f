// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How entries of the reference table end: what holds them is counted off, and what nothing holds is
// freed, or released if lineage wants it. All by lists, so that neither the stack nor a single stop
// grows with what hangs together.
#include <utility>

#include "worker/owner/reference_table.h"

namespace sheaf {
namespace {

constexpr size_t kAtOnce = 8;  // So many references inside a value are dropped with it.

}  // namespace

ReferenceTable::~ReferenceTable() {
  // What was dropped need not be freed one by one any more; only whether handles live is of
  // interest. One that is just being dropped on another thread counts as living.
  for (ObjectEntry* entry = collecting_ != nullptr ? collecting_ : drops_->TakeAll();
       entry != nullptr || (entry = drops_->TakeAll()) != nullptr;) {
    ObjectEntry* next = entry->next_dropped;
    drops_->held -= entry->drops_due.exchange(0, std::memory_order_acq_rel);
    entry = next;
  }
  if (drops_->held != 0) {
    entries_.Leak();  // A handle may be dropped after the end of the runtime; it must find its
                      // entry and the queue.
  } else {
    delete drops_;
  }
}

void ReferenceTable::Doom(ObjectEntry& entry) {
  if (entry.held() || entry.doomed) return;
  entry.doomed = true;
  doomed_.push_back(&entry);
}

bool ReferenceTable::CollectSome(size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    if (!doomed_.empty()) {
      ObjectEntry& entry = *doomed_.back();
      doomed_.pop_back();
      entry.doomed = false;
      FreeIfUnheld(entry);
    } else if (!dropping_.empty()) {
      DropNext();
    } else if (collecting_ != nullptr) {
      CountOffHandles();
    } else if (!drops_->empty()) {  // A look is cheap, taking is not.
      collecting_ = drops_->TakeAll();
    } else {
      return false;
    }
  }
  return NeedsCollecting();
}

void ReferenceTable::CountOffHandles() {
  ObjectEntry& entry = *std::exchange(collecting_, collecting_->next_dropped);
  const uint32_t due = entry.drops_due.exchange(0, std::memory_order_acq_rel);
  entry.held_by_handles -= due;
  drops_->held -= due;
  if (entry.stream && entry.uses != 0 && on_stream_abandoned_ &&
      entry.handles.load(std::memory_order_acquire) == 0) {
    on_stream_abandoned_(entry);
  }
  if (!entry.doomed) FreeIfUnheld(entry);  // Not by way of `doomed_`: most entries end here.
}

void ReferenceTable::DropNext() {
  Dropping& last = dropping_.back();
  ObjectEntry& entry = *last.entries.back();
  last.entries.pop_back();
  const bool for_lineage = last.for_lineage;
  if (last.entries.empty()) dropping_.pop_back();
  if (for_lineage) {
    DropLineageUse(entry);
  } else {
    DropUse(entry);
  }
}

void ReferenceTable::DropNested(ObjectEntry& entry) {
  if (!entry.extra || entry.extra->nested.empty()) return;
  Dropping nested{std::exchange(entry.extra->nested, {}), entry.keeps_for_lineage};
  if (nested.entries.size() > kAtOnce) {
    dropping_.push_back(std::move(nested));
    return;
  }
  for (ObjectEntry* inner : nested.entries) {
    if (nested.for_lineage) {
      DropLineageUse(*inner);
    } else {
      DropUse(*inner);
    }
  }
}

void ReferenceTable::FreeIfUnheld(ObjectEntry& entry) {
  if (entry.held() || (entry.owned && entry.extra && !entry.extra->borrowers.empty())) return;
  if (entry.lineage_uses == 0) {
    Free(entry);
  } else {
    Release(entry);
  }
}

void ReferenceTable::Free(ObjectEntry& entry) {
  AddUse(entry);  // What follows may come back here.
  if (entry.listed) listed_.erase(entry.id);
  if (entry.unpromoted) unpromoted_.erase(entry.id);
  if (entry.owned) {
    if (entry.location.known() || entry.extra) FreeCopies(entry);
    if (entry.task != nullptr && release_task_) release_task_(entry);
  } else {
    if (!entry.released) AnnounceDrop(entry);
    const auto of_owner = borrowed_.find(entry.id.maker());
    ObjectEntry* last = of_owner->second.back();
    last->extra->position = entry.extra->position;
    of_owner->second[last->extra->position] = last;
    of_owner->second.pop_back();
    if (of_owner->second.empty()) borrowed_.erase(of_owner);
  }
  if (entry.extra && entry.extra->actor != nullptr && on_actor_unreferenced_)
    on_actor_unreferenced_(entry);
  DropNested(entry);
  ForgetValue(entry);
  entries_.Delete(&entry);
}

// Only lineage holds it.
void ReferenceTable::Release(ObjectEntry& entry) {
  if (entry.stream || entry.released) return;
  if (entry.extra && entry.extra->actor != nullptr) {
    AddUse(entry);
    if (on_actor_unreferenced_) on_actor_unreferenced_(entry);
    entry.extra->actor = nullptr;
    --entry.uses;
  }
  if (!entry.owned) {
    SetPending(entry);
    entry.registered = false;
    entry.released = true;
    AnnounceDrop(entry);
    return;
  }
  if (entry.state == ObjectState::kPending || entry.state == ObjectState::kError) return;
  if (entry.state == ObjectState::kValue && entry.task == nullptr) return KeepForLineage(entry);
  if (entry.state == ObjectState::kValue) FreeCopies(entry);
  SetPending(entry);
  entry.released = true;
}

void ReferenceTable::KeepForLineage(ObjectEntry& entry) {
  if (entry.keeps_for_lineage) return;
  FreeCopies(entry);
  entry.location = {};
  if (entry.unpromoted) unpromoted_.erase(entry.id);
  entry.unpromoted = false;
  entry.keeps_for_lineage = true;
  lineage_value_bytes_ += entry.value.size();
  if (!entry.extra) return;
  for (ObjectEntry* inner : entry.extra->nested) {
    ++inner->lineage_uses;
    DropUse(*inner);
  }
}

void ReferenceTable::KeepNoMore(ObjectEntry& entry) {
  if (!entry.keeps_for_lineage) return;
  entry.keeps_for_lineage = false;
  if (entry.lineage_uses != 0) lineage_value_bytes_ -= entry.value.size();
  if (!entry.extra) return;
  for (ObjectEntry* inner : entry.extra->nested) {
    AddUse(*inner);
    DropLineageUse(*inner);
  }
}

void ReferenceTable::UseForLineage(ObjectEntry& entry) {
  KeepNoMore(entry);
  ++entry.lineage_uses;
  DropUse(entry);
}

void ReferenceTable::UseAgain(ObjectEntry& entry) {
  KeepNoMore(entry);
  --entry.lineage_uses;
  AddUse(entry);
}

void ReferenceTable::DropLineageUse(ObjectEntry& entry) {
  if (--entry.lineage_uses != 0) return;
  if (entry.keeps_for_lineage) lineage_value_bytes_ -= entry.value.size();
  Doom(entry);
}

}  // namespace sheaf
