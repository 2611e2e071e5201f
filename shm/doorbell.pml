// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Model of doorbell.h for spin: N senders, and one receiver with a driver and a background thread.
//
// Each sender publishes F frames, each on a lane of its choice. The driver takes frames, sleeps, and runs user code, from
// which it may never return. The background thread takes control frames meanwhile. `token` is the receiver's lock: its
// holder alone sets the bell. A futex is an atomic compare-and-sleep.
// Oracle (Monitor), in every state where nothing moves any more: a driver asleep has taken everything, and a receiver in
// user code has taken every control frame.
//
// With it:
//   DIE      senders may die at any step.       RAYLET  each death is followed by RingAfterDeath.
//   PAUSE    senders may stop for ever between exchange and wake.
//   TIMED    no sleep is for ever: it ends when a frame waits and nothing else can happen.
//   LATE     the bell for a work frame may be put off (mailbox.h): it is rung once, behind more frames.
// Planted faults, each of which must be found:
//   UNGUARDED         old = load; plain store of kAwake; wake if old asked for it.
//   NO_FENCE          the sender's load may pass its store of the frame (store buffer).
//   NO_SLEEPER_FENCE  the sleeper's second look may pass its store of the state.
//   NO_SECOND_LOOK    the sleeper does not look again.
//   NO_REAWAY         the background thread does not say kAway again after it was called.
//   CLEAR_LATE        it clears the knock after its look at the rings.
//   WORK_ONLY_DEATH   RingAfterDeath forgets the background thread.
//   NEVER_RUNG        a bell that was put off is forgotten.
//
// spin: -DN=1 -DF=3 => pass
// spin: -DN=2 -DF=2 => pass
// spin-long: -DN=3 -DF=1 => pass
// spin: -DN=2 -DF=1 -DDIE -DRAYLET => pass
// spin-long: -DN=2 -DF=2 -DDIE -DRAYLET => pass
// spin-long: -DN=3 -DF=1 -DDIE -DRAYLET => pass
// spin-long: -DN=2 -DF=2 -DPAUSE -DTIMED => pass
// spin: -DN=2 -DF=1 -DPAUSE -DTIMED => pass
// spin: -DN=2 -DF=1 -DDIE -DTIMED => pass
// spin: -DN=1 -DF=3 -DLATE => pass
// spin: -DN=2 -DF=2 -DLATE => pass
// spin: -DN=2 -DF=1 -DLATE -DDIE -DRAYLET => pass
// spin-long: -DN=2 -DF=2 -DLATE -DDIE -DRAYLET => pass
// spin: -DN=1 -DF=2 -DUNGUARDED => fail
// spin: -DN=1 -DF=1 -DNO_FENCE => fail
// spin: -DN=1 -DF=1 -DNO_SLEEPER_FENCE => fail
// spin: -DN=1 -DF=1 -DNO_SECOND_LOOK => fail
// spin: -DN=1 -DF=2 -DNO_REAWAY => fail
// spin: -DN=2 -DF=1 -DCLEAR_LATE => fail
// spin: -DN=2 -DF=1 -DDIE => fail
// spin: -DN=2 -DF=1 -DDIE -DRAYLET -DWORK_ONLY_DEATH => fail
// spin: -DN=2 -DF=1 -DPAUSE => fail
// spin: -DN=1 -DF=2 -DLATE -DNEVER_RUNG => fail

#define AWAKE 0
#define ASLEEP 1
#define AWAY 2
#define WORK 0
#define CONTROL 1

byte state = AWAKE;
bit knock = 0;
byte published[2], taken[2];
bool driver_sleeps = false, background_sleeps = false;  // In FUTEX_WAIT.
bool token = false;
bool away = false;      // User code runs.
bool finished = false;  // User code runs for ever.
byte deaths = 0;

#define WORK_WAITS (published[WORK] != taken[WORK])
#define CONTROL_WAITS (published[CONTROL] != taken[CONTROL])
#define DRIVER_MISSED (driver_sleeps && (WORK_WAITS || CONTROL_WAITS))
#define BACKGROUND_MISSED (background_sleeps && away && CONTROL_WAITS)

#ifdef DIE
#define MAY_DIE if :: deaths++; goto end_dead :: skip fi
#else
#define MAY_DIE skip
#endif

inline wake(was) {
  if
  :: was == ASLEEP -> driver_sleeps = false
  :: was == AWAY -> knock = 1; MAY_DIE; background_sleeps = false
  fi
}

inline ring_bell() {
#ifdef UNGUARDED
  old = state;
  state = AWAKE;
  if :: old == ASLEEP || (old == AWAY && lane == CONTROL) -> wake(old) :: else fi
#else
  MAY_DIE;
#ifndef NO_FENCE
  seen = state;
#endif
  if
  :: seen == ASLEEP || (seen == AWAY && lane == CONTROL) ->
     MAY_DIE;
     atomic { old = state; state = AWAKE }
     MAY_DIE;
#ifdef PAUSE
     if :: goto end_dead :: skip fi;
#endif
     if :: old != AWAKE -> wake(old) :: else fi
  :: else
  fi
#endif
}

active [N] proctype Sender() {
  byte sent = 0, old, seen;
  bit lane;
  bool late = false;  // A bell for work is put off.
  do
#ifdef LATE
  :: late -> lane = WORK; late = false; ring_bell(); d_step { old = 0; seen = 0 }
#endif
  :: sent < F ->
     if :: lane = WORK :: lane = CONTROL fi;
#ifdef NO_FENCE
     if
     :: seen = state; published[lane]++
     :: published[lane]++; seen = state
     fi;
#else
     published[lane]++;
#endif
     sent++;
#ifdef LATE
     if
#ifdef NEVER_RUNG
     :: lane == WORK -> skip
#else
     :: lane == WORK -> late = true
#endif
     :: lane == WORK -> late = false; ring_bell()
     :: lane == CONTROL -> ring_bell()
     fi;
#else
     ring_bell();
#endif
     d_step { old = 0; seen = 0; lane = 0 }  // Forgotten, so that fewer states differ.
  :: sent == F && !late -> break
  od;
end_dead: skip
}

inline take(l) { d_step { taken[l] = published[l] } }

// Looks at both lanes, one after the other.
inline look(found) {
  found = false;
  d_step { if :: CONTROL_WAITS -> found = true; taken[CONTROL] = published[CONTROL] :: else fi };
  d_step { if :: WORK_WAITS -> found = true; taken[WORK] = published[WORK] :: else fi }
}

// state := kAway and the second look, as often as there is something.
inline go_away() {
  do
  ::
#ifdef NO_SLEEPER_FENCE
     if
     :: found = CONTROL_WAITS; state = AWAY
     :: state = AWAY; found = CONTROL_WAITS
     fi;
#else
     state = AWAY;
     found = CONTROL_WAITS;
#endif
#ifdef NO_SECOND_LOOK
     found = false;
#endif
     if :: found -> take(CONTROL) :: else -> break fi
  od
}

active proctype Driver() {
  bool found;
  do
  :: atomic { !token -> token = true; away = false; state = AWAKE };
     look(found);
     if
     :: found  // Go on, without sleep.
     :: else ->
#ifdef NO_SLEEPER_FENCE
        if
        :: look(found); state = ASLEEP
        :: state = ASLEEP; look(found)
        fi;
#else
        state = ASLEEP;
        look(found);
#endif
#ifdef NO_SECOND_LOOK
        found = false;
#endif
        if
        :: found
        :: else ->
           if
           :: atomic { state == ASLEEP -> driver_sleeps = true };
#ifdef TIMED
end_asleep:   if
              :: !driver_sleeps
              :: timeout && DRIVER_MISSED -> driver_sleeps = false
              fi
#else
end_asleep:   !driver_sleeps
#endif
           :: state != ASLEEP
           fi
        fi;
        state = AWAKE
     fi;
     found = false;
     if
     :: away = true; go_away();
        if
        :: atomic { finished = true; token = false };
end_user:  false
        :: token = false
        fi
     :: token = false
     fi
  od
}

active proctype Background() {
  bool found;
  do
  ::
     if
     :: atomic { knock == 0 -> background_sleeps = true };
#ifdef TIMED
end_idle: if
        :: !background_sleeps
        :: timeout && BACKGROUND_MISSED -> background_sleeps = false
        fi
#else
end_idle: !background_sleeps
#endif
     :: knock == 1
     fi;
#ifndef CLEAR_LATE
     knock = 0;
#endif
end_token: atomic { !token -> token = true };
#ifndef NO_REAWAY
     if :: away -> go_away() :: else fi;
#else
     if :: away -> take(CONTROL) :: else fi;
#endif
     token = false;
#ifdef CLEAR_LATE
     knock = 0;
#endif
  od
}

#ifdef RAYLET
active proctype Raylet() {
end_watch:
  do
  :: atomic { deaths > 0 -> deaths--; state = AWAKE };
     driver_sleeps = false;
#ifndef WORK_ONLY_DEATH
     knock = 1;
     background_sleeps = false
#endif
  od
}
#endif

active proctype Monitor() {
#ifdef TIMED
end_monitor:
  (timeout && !DRIVER_MISSED && !BACKGROUND_MISSED) ->
#else
  timeout ->
#endif
  assert(!DRIVER_MISSED && !(away && finished && CONTROL_WAITS))
}
