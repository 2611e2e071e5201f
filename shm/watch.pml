// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Model of the calls of ring.h and doorbell.h for spin: N writers with a ring each, and one reader that stops looking at
// rings that are quiet, and sleeps.
//
// Each writer publishes F records. The reader takes calls, looks at the rings that it watches, gives up watching any of
// them at any time, and sleeps on its bell. A futex is an atomic compare-and-sleep.
// Oracle (Monitor), in every state where nothing moves any more: the reader sleeps and has taken everything.
//
// Planted faults, each of which must be found:
//   NO_FENCE         the writer's look at `unwatched` may pass its store of the record (store buffer).
//   NO_READER_FENCE  the reader's last look at a ring may pass its store of `unwatched`.
//   NO_LAST_LOOK     the reader does not look at a ring again when it stops watching it.
//   BELL_FIRST       the writer that calls does not look at the bell again afterwards.
//   CALLS_UNSEEN     the reader's second look before it sleeps leaves out the calls.
//   CLEAR_LATE       the reader clears a call after its look at the ring.
//
// spin: -DN=1 -DF=3 => pass
// spin: -DN=2 -DF=2 => pass
// spin-long: -DN=3 -DF=1 => pass
// spin: -DN=1 -DF=1 -DNO_FENCE => fail
// spin: -DN=1 -DF=1 -DNO_READER_FENCE => fail
// spin: -DN=1 -DF=1 -DNO_LAST_LOOK => fail
// spin: -DN=1 -DF=1 -DBELL_FIRST => fail
// spin: -DN=1 -DF=1 -DCALLS_UNSEEN => fail
// spin: -DN=1 -DF=2 -DCLEAR_LATE => fail

#define AWAKE 0
#define ASLEEP 1

byte state = AWAKE;
bool sleeps = false;  // In FUTEX_WAIT.
byte published[N], taken[N];
bit unwatched[N], called[N];
bit watched[N];

inline call() {
  atomic { was = unwatched[me]; unwatched[me] = 0 };
  if
  :: was -> called[me] = 1;
#ifndef BELL_FIRST
     seen = state
#endif
  :: else
  fi
}

proctype Writer(byte me) {
  byte sent = 0, seen;
  bit saw, was;
  do
  :: sent < F ->
#ifdef NO_FENCE
     if
     :: saw = unwatched[me]; published[me]++
     :: published[me]++; saw = unwatched[me]
     fi;
     seen = state;
#else
     published[me]++;
     // Two loads behind the fence, in either order.
     if
     :: seen = state; saw = unwatched[me]
     :: saw = unwatched[me]; seen = state
     fi;
#endif
     sent++;
     if :: saw -> call() :: else fi;
     if
     :: seen == ASLEEP ->
        atomic { was = (state == ASLEEP); state = AWAKE };
        if :: was -> sleeps = false :: else fi
     :: else
     fi;
     d_step { seen = 0; saw = 0; was = 0 }
  :: sent == F -> break
  od
}

#define WAITS(i) (published[i] != taken[i])

active proctype Reader() {
  byte i;
  bool found;
end_poll:
  do
  ::
     found = false;
     i = 0;
     do
     :: i < N ->
        if
        :: called[i] ->
#ifdef CLEAR_LATE
           watched[i] = 1; unwatched[i] = 0;
           taken[i] = published[i];
           called[i] = 0;
           watched[i] = 0; unwatched[i] = 1
#else
           called[i] = 0;
           watched[i] = 1; unwatched[i] = 0
#endif
        :: else
        fi;
        if
        :: watched[i] ->
           if :: WAITS(i) -> taken[i] = published[i]; found = true :: else fi;
           if
           :: skip
           :: !found ->  // Quiet for long.
#ifdef NO_LAST_LOOK
              unwatched[i] = 1; watched[i] = 0
#else
#ifdef NO_READER_FENCE
              if
              :: WAITS(i) -> skip
              :: else -> unwatched[i] = 1; watched[i] = 0
              fi
#else
              unwatched[i] = 1;
              if
              :: WAITS(i) -> unwatched[i] = 0
              :: else -> watched[i] = 0
              fi
#endif
#endif
           fi
        :: else
        fi;
        i++
     :: i == N -> break
     od;
     if
     :: found
     :: else ->
        state = ASLEEP;
        i = 0;
        do
        :: i < N ->
#ifndef CALLS_UNSEEN
           if :: called[i] -> found = true :: else fi;
#endif
           if :: watched[i] && WAITS(i) -> found = true :: else fi;
           i++
        :: i == N -> break
        od;
        if
        :: found
        :: else ->
           if
           :: atomic { state == ASLEEP -> sleeps = true };
end_asleep:   !sleeps
           :: state != ASLEEP
           fi
        fi;
        state = AWAKE
     fi;
     i = 0
  od
}

init {
  byte i = 0;
  atomic {
    do
    :: i < N -> watched[i] = 1; run Writer(i); i++
    :: i == N -> break
    od
  }
}

active proctype Monitor() {
  byte i = 0;
  timeout ->
  assert(sleeps);
  do
  :: i < N -> assert(!WAITS(i)); i++
  :: i == N -> break
  od
}
