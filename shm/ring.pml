// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Model of ring.h for spin: one writer, one reader, a ring of CELLS words. A record takes 1 to LONGEST words, its length in
// the first. Each word says which frame it belongs to, so a torn, lost, doubled or overwritten frame is an assertion.
// The reader's store of head may wait in its store buffer (head, against head_seen, which is what the writer reads), and
// so may, in one planted fault, the writer's flag. Sleeping on a bell is doorbell.pml's matter: here a writer without room
// sleeps until its flag is cleared.
// Oracle: the reader takes frames 0, 1, 2, ... whole; when nothing moves any more it has taken everything that was
// published, and no writer sleeps beside a living reader.
//
//   DIE  the writer may die at any step.
// Planted faults, each of which must be found:
//   TAIL_FIRST          tail is stored before the last word is written.
//   RELEASE_FIRST       the reader gives a record back before it has used it.
//   JUMP_ALONE          a jump is published before its record.
//   JUMP_UNCHECKED      an empty ring jumps also where jump and record together do not fit.
//   ASK_FIRST           a writer asks for room before it has published.
//   NO_SECOND_TRY       it sleeps without another look at head.
//   NO_WRITER_FENCE     that look may pass its store of the flag.
//   NO_READER_FENCE     the reader's look at the flag may always pass its store of head.
//
// spin: -DFRAMES=4 => pass
// spin: -DFRAMES=4 -DDIE => pass
// spin-long: -DFRAMES=6 -DDIE => pass
// spin: -DFRAMES=3 -DTAIL_FIRST => fail
// spin: -DFRAMES=5 -DRELEASE_FIRST => fail
// spin: -DFRAMES=5 -DDIE -DJUMP_ALONE => fail
// spin: -DFRAMES=5 -DJUMP_UNCHECKED => fail
// spin: -DFRAMES=5 -DASK_FIRST => fail
// spin: -DFRAMES=5 -DNO_SECOND_TRY => fail
// spin: -DFRAMES=5 -DNO_WRITER_FENCE => fail
// spin: -DFRAMES=5 -DNO_READER_FENCE => fail

#define CELLS 8
#define LONGEST 3  // 2 * LONGEST <= CELLS * 3 / 4, as in ring.h.
#define PAGE 2
#define JUMP 255
#ifdef JUMP_UNCHECKED
#define JUMP_FITS true
#else
#define JUMP_FITS (CELLS - (reserved % CELLS) + size <= CELLS)
#endif

byte frame[CELLS], part[CELLS], length[CELLS];
byte tail = 0;
byte head = 0, head_seen = 0;
bit flag = 0;         // writer_waits.
bit flag_late = 0;    // NO_WRITER_FENCE: stored, not yet seen by the reader.
byte taken = 0, published = 0;
bool writer_sleeps = false, writer_done = false;

#ifdef DIE
#define MAY_DIE if :: goto end_writer :: skip fi
#else
#define MAY_DIE skip
#endif

inline store_flag() {
#ifdef NO_WRITER_FENCE
  flag_late = 1
#else
  flag = 1
#endif
}

inline publish() {
  tail = reserved;
  published = made
}

// Sets `fits`; when it does, jumps if needed.
inline reserve(size) {
  if
  :: seen = head_seen  // A look at head, which a writer may take at any time
  :: reserved + size - seen <= CELLS && (reserved % CELLS) + size <= CELLS  // and needs to take only without room.
  fi;
  d_step {
    skip_words = 0;
    if
    :: (reserved % CELLS) + size > CELLS -> skip_words = CELLS - (reserved % CELLS)
    :: (reserved % CELLS) + size <= CELLS && (reserved % CELLS) >= PAGE && seen == reserved && JUMP_FITS -> skip_words = CELLS - (reserved % CELLS)
    :: else
    fi;
    fits = (reserved + skip_words + size - seen <= CELLS)
  }
  if
  :: fits && skip_words > 0 ->
     MAY_DIE;
     length[reserved % CELLS] = JUMP;
     reserved = reserved + skip_words;
#ifdef JUMP_ALONE
     tail = reserved;
     MAY_DIE
#endif
  :: else
  fi
}

active proctype Writer() {
  byte made = 0, reserved = 0, seen = 0, size, i, skip_words;
  bool fits;
  do
  :: made < FRAMES ->
     if :: size = 1 :: size = 2 :: size = LONGEST fi;
     reserve(size);
     if
     :: !fits ->
#ifndef ASK_FIRST
        publish();
#endif
        store_flag();
#ifndef NO_SECOND_TRY
        reserve(size);
#endif
        if
        :: !fits -> writer_sleeps = true;
end_sleep: (flag == 0 && flag_late == 0);
           writer_sleeps = false
        :: else
        fi
     :: else
     fi;
     if
     :: fits ->
        i = 0;
        do
        :: i < size ->
           MAY_DIE;
#ifdef TAIL_FIRST
           if :: i == size - 1 -> tail = reserved + size :: else fi;
#endif
           d_step { frame[(reserved + i) % CELLS] = made; part[(reserved + i) % CELLS] = i; length[(reserved + i) % CELLS] = size; i++ }
        :: i == size -> break
        od;
        MAY_DIE;
        reserved = reserved + size;
        made++;
        if :: publish() :: made < FRAMES -> skip fi  // Several records may be published together.
     :: else
     fi
  :: made == FRAMES -> publish(); writer_done = true; break
  od;
end_writer: skip
}

inline release() {
  head = mine;
  if
  :: mine - fenced >= CELLS / 4 ->
#ifndef NO_READER_FENCE
     head_seen = head;  // The fence.
#endif
     fenced = mine
  :: else
  fi;
  if
  :: flag == 1 -> flag = 0; head_seen = head  // The ring comes after both stores.
  :: else
  fi
}

active proctype Reader() {
  byte mine = 0, known = 0, fenced = 0, i, size;
end_reader:
  do
  :: mine != tail ->
     known = tail;
     do
     :: mine != known ->
        if
        :: length[mine % CELLS] == JUMP ->
           mine = mine + CELLS - (mine % CELLS);
           assert(mine < known)
        :: else
        fi;
        size = length[mine % CELLS];
        assert(size >= 1 && size <= LONGEST && mine + size <= known);
#ifdef RELEASE_FIRST
        mine = mine + size;
        release();
        mine = mine - size;
#endif
        i = 0;
        do
        :: i < size -> assert(frame[(mine + i) % CELLS] == taken && part[(mine + i) % CELLS] == i); i++
        :: i == size -> break
        od;
        mine = mine + size;
        taken++;
        if :: release() :: mine != known -> skip fi
     :: mine == known -> break
     od
  od
}

// The store buffers drain sooner or later.
active proctype Memory() {
end_memory:
  do
  :: head_seen != head -> head_seen = head
#ifdef NO_WRITER_FENCE
  :: flag_late == 1 -> d_step { flag_late = 0; flag = 1 }
#endif
  od
}

active proctype Monitor() {
  timeout -> assert(taken == published && !writer_sleeps)
}
