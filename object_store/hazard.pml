// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Model of layout.h for spin: one slot and its memory; a writer that publishes OBJECTS objects in it one after the other,
// READERS readers that pin and read, and the raylet that frees, spills (in vain when pinned) and lets the slot be used
// again. `data` is two cells, so that partial bytes can be seen. The hazard store of a reader may wait in its store
// buffer (hazard, against hazard_seen, which is what the raylet reads), and so may the raylet's word.
// Oracle: what a reader that passed the re-read sees is the whole object of its location, and stays so until it unpins;
// when nothing moves any more, every object was published and freed.
//
//   DIE  readers may die at any step: their list goes with them. The writer may die while it writes: the raylet
//        takes the slot back, in the next generation, and another writer goes on.
// Planted faults, each of which must be found:
//   NO_REREAD           the reader trusts the look it had before it set the hazard.
//   NO_GENERATION       the re-read looks at the state only.
//   NO_READER_FENCE     the re-read may pass the store of the hazard.
//   NO_RAYLET_FENCE     the scan may pass the store of kFreeing.
//   NO_SCAN             the raylet frees without looking at the hazards.
//   SEAL_FIRST          the writer seals before its last cell is written.
//   SAME_GENERATION     a freed slot is used again in the same generation.
//
// spin: -DREADERS=1 -DOBJECTS=3 => pass
// spin: -DREADERS=2 -DOBJECTS=2 => pass
// spin: -DREADERS=1 -DOBJECTS=3 -DDIE => pass
// spin: -DREADERS=2 -DOBJECTS=2 -DDIE => pass
// spin-long: -DREADERS=3 -DOBJECTS=2 -DDIE => pass
// spin: -DREADERS=1 -DOBJECTS=2 -DNO_REREAD => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DNO_GENERATION => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DNO_READER_FENCE => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DNO_RAYLET_FENCE => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DNO_SCAN => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DSEAL_FIRST => fail
// spin: -DREADERS=1 -DOBJECTS=2 -DSAME_GENERATION => fail

#define FREE 0
#define CREATED 1
#define SEALED 2
#define FREEING 3
#define NONE 255

byte generation = 0, state = FREE;              // The slot's word, as all but the raylet see it.
byte data0 = 0, data1 = 0;                      // The object's bytes: both the number of the object, from 1.
byte hazard[READERS], hazard_seen[READERS];     // Generation + 1, or 0.
byte object_of[8];                              // The object that was published in each generation.
byte published = NONE;                          // The last location handed out; readers may hold older ones.
byte sealed_count = 0, freed_count = 0;
bool writer_dead = false, writer_died = false, done = false;
bool killed[READERS];

#ifdef SAME_GENERATION
#define NEXT generation
#else
#define NEXT (generation + 1)
#endif

active proctype Writer() {
  byte number = 1;
end_idle:
  do
  :: atomic { number <= OBJECTS && state == FREE && !writer_dead -> state = CREATED }
     data0 = number;
#ifdef DIE
     if
     :: atomic { !writer_died -> writer_died = true; writer_dead = true }  // Half written. Another writer takes over when the slot is back.
        (!writer_dead)
     :: true ->
#endif
#ifdef SEAL_FIRST
     atomic { object_of[generation] = number; published = generation; state = SEALED; sealed_count++ }
     data1 = number;
#else
     data1 = number;
     atomic { object_of[generation] = number; published = generation; state = SEALED; sealed_count++ }
#endif
     number++
#ifdef DIE
     fi
#endif
  :: number > OBJECTS -> break
  od
}

// Its stores reach the raylet in order; `flush` may come late.
inline flush() { hazard_seen[me] = hazard[me] }

proctype Reader(byte me) {
  byte location, expect, saw;
  {
end_idle:
  do
  :: atomic { published != NONE -> location = published; expect = object_of[location] }
     // It may hold the location for as long as it likes.
#ifdef NO_REREAD
     if :: atomic { state == SEALED && generation == location } :: else -> goto missed fi;
#endif
     hazard[me] = location + 1;
#ifdef NO_READER_FENCE
     if :: flush() :: true fi;
#else
     flush();
#endif
#ifndef NO_REREAD
     if
#ifdef NO_GENERATION
     :: state == SEALED
#else
     :: atomic { state == SEALED && generation == location }
#endif
     :: else -> goto missed
     fi;
#endif
     saw = data0;
     assert(saw == expect);
     saw = data1;
     assert(saw == expect);
     flush();  // A store does not wait for ever.
     saw = data0;
     assert(saw == expect);
missed:
     hazard[me] = 0;
     flush()
  :: done -> break
  od
  } unless { atomic { killed[me] -> hazard[me] = 0; hazard_seen[me] = 0 } }  // Its list goes with its last mapping.
}

#ifdef DIE
active proctype Killer() {
end_watch:
  if :: killed[0] = true :: done fi
}
#endif

active proctype Raylet() {
  byte i;
  bool pinned, spill;
end_idle:
  do
  :: state == SEALED ->
     if :: spill = false :: spill = true fi;
#ifdef NO_RAYLET_FENCE
     // The store of kFreeing is still in the buffer while it scans.
#else
     state = FREEING;
#endif
rescan:
     pinned = false;
     i = 0;
     do
     :: i < READERS ->
#ifndef NO_SCAN
        if :: hazard_seen[i] == generation + 1 -> pinned = true :: else fi;
#endif
        i++
     :: else -> break
     od;
#ifdef NO_RAYLET_FENCE
     state = FREEING;
#endif
     if
     :: pinned && spill -> state = SEALED
     :: pinned && !spill -> goto rescan
     :: !pinned -> atomic { generation = NEXT; state = FREE; freed_count++ }
     fi
#ifdef DIE
  :: atomic { writer_dead && state == CREATED -> generation = NEXT; state = FREE; writer_dead = false }
#endif
  :: freed_count == OBJECTS -> done = true; break
  od
}

init {
  byte i = 0;
  atomic {
    do :: i < READERS -> run Reader(i); i++ :: else -> break od
  }
}

active proctype Monitor() {
end_watch:
  timeout -> assert(freed_count == OBJECTS)
}
