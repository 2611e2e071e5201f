// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A small value put into and read from a table of this process: take a slot, copy the bytes in,
// find them again by (slot, generation), copy them out, free the slot. What put and get of a small
// value cost at least.
#include <memory>

#include "figures.h"

namespace {

constexpr uint32_t kSlots = 1 << 16;
constexpr size_t kInlineBytes = 48;

struct alignas(64) Slot {
  uint32_t generation;
  uint32_t next_free;
  uint32_t size;
  char bytes[kInlineBytes];
};

struct Reference {
  uint32_t slot;
  uint32_t generation;
};

class Table {
 public:
  Table() : slots_(new Slot[kSlots]{}) {
    for (uint32_t i = 0; i < kSlots; ++i) slots_[i].next_free = i + 1;
  }
  Reference Put(const void* bytes, size_t size) {
    const uint32_t index = free_;
    Slot& slot = slots_[index];
    free_ = slot.next_free;
    slot.size = static_cast<uint32_t>(size);
    std::memcpy(slot.bytes, bytes, size);
    return {index, slot.generation};
  }
  bool Get(Reference reference, void* bytes, size_t size) const {
    const Slot& slot = slots_[reference.slot];
    if (slot.generation != reference.generation || slot.size != size) return false;
    std::memcpy(bytes, slot.bytes, size);
    return true;
  }
  void Free(Reference reference) {
    Slot& slot = slots_[reference.slot];
    ++slot.generation;
    slot.next_free = free_;
    free_ = reference.slot;
  }

 private:
  std::unique_ptr<Slot[]> slots_;
  uint32_t free_ = 0;
};

template <class T>
void Keep(const T& value) {  // The compiler must believe that somebody looks at it.
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  Table table;
  constexpr uint64_t kBatch = 1000;
  std::vector<Reference> references(kBatch);

  floors::Print("floor_local_put_and_get", "1/s", floors::MedianRate(seconds, [&] {
                  for (uint64_t i = 0; i < kBatch; ++i) {
                    const Reference reference = table.Put(&i, sizeof i);
                    Keep(reference);
                    uint64_t value = 0;
                    floors::Require(table.Get(reference, &value, sizeof value) && value == i,
                                    "value");
                    table.Free(reference);
                  }
                  return kBatch;
                }));
  floors::Print("floor_local_put", "1/s", floors::MedianRate(seconds, [&] {
                  for (uint64_t i = 0; i < kBatch; ++i) {
                    references[i] = table.Put(&i, sizeof i);
                    Keep(references[i]);
                  }
                  for (Reference reference : references) table.Free(reference);
                  return kBatch;
                }));
  for (uint64_t i = 0; i < kBatch; ++i) references[i] = table.Put(&i, sizeof i);
  floors::Print("floor_local_get", "1/s", floors::MedianRate(seconds, [&] {
                  for (uint64_t i = 0; i < kBatch; ++i) {
                    uint64_t value = 0;
                    floors::Require(table.Get(references[i], &value, sizeof value) && value == i,
                                    "value");
                    Keep(value);
                  }
                  return kBatch;
                }));
}
