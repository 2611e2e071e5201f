// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Model of kIdle in layout.h for spin: an extent that is bound to a slot of its holder and lies idle. The holder may
// take it for its next object, the raylet may take it back for another process, at any time, without a message;
// the holder may be stopped, or die, at any step.
// Oracle: never do two processes write there at once.
//
//   DIE  the holder may die at any step.
// Planted faults, each of which must be found:
//   HOLDER_STORES       the holder looks at the word and then stores kCreated.
//   RAYLET_STORES       the raylet looks at the word and then stores kFree.
//   EARLY_REUSE         the raylet takes a dead holder's extent before the kernel says that it is dead.
//
// spin: -DROUNDS=3 => pass
// spin: -DROUNDS=3 -DDIE => pass
// spin: -DROUNDS=2 -DHOLDER_STORES => fail
// spin: -DROUNDS=2 -DRAYLET_STORES => fail
// spin: -DROUNDS=2 -DDIE -DEARLY_REUSE => fail

#define FREE 0
#define CREATED 1
#define SEALED 2
#define IDLE 3

byte word = IDLE;
byte writers = 0;        // Processes that write to the extent now.
bool with_other = false; // The extent is granted to the other process.
bool dead = false, seen_dead = false;

inline write_there() { writers++; assert(writers == 1); writers-- }

active proctype Holder() {
  byte round = 0;
end_idle:
  do
  :: round < ROUNDS && word == IDLE ->
#ifdef HOLDER_STORES
     word = CREATED;
#else
     if :: atomic { word == IDLE -> word = CREATED } :: else -> goto lost fi;
#endif
#ifdef DIE
     if
     :: writers++; assert(writers == 1);
        atomic { dead = true; writers-- }; goto end_dead  // In the middle of writing.
     :: write_there()
     fi;
#else
     write_there();
#endif
     word = SEALED;
     round++
  :: round < ROUNDS && word == FREE ->
lost:
     // It asks for another extent; here the same comes back when the other process is done with it.
     if :: atomic { !with_other && word == FREE -> word = IDLE } :: with_other fi
  :: round == ROUNDS -> break
#ifdef DIE
  :: dead = true; goto end_dead
#endif
  od;
end_dead: skip
}

active proctype Raylet() {
end_idle:
  do
  :: word == SEALED -> word = IDLE  // Freed; nobody views it.
  :: word == IDLE && !with_other ->
#ifdef RAYLET_STORES
     word = FREE; with_other = true
#else
     if :: atomic { word == IDLE -> word = FREE; with_other = true } :: else fi
#endif
  :: dead && !seen_dead ->
#ifdef EARLY_REUSE
     skip
#endif
     seen_dead = true;
     if :: !with_other -> word = FREE; with_other = true :: else fi
#ifdef EARLY_REUSE
  :: word == CREATED && !with_other && !dead -> word = FREE; with_other = true  // "It takes so long, it must be dead."
#endif
  od
}

active proctype Other() {
end_idle:
  do
  :: with_other -> write_there(); with_other = false
  od
}
