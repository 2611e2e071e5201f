// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The cluster's clock, as its server says: that of the machine of the browser may be wrong.

const kStep = 1000; // Words come in their order; a clock that goes back further was set back.
let ahead = 0; // Of ours before the cluster's.
let heard = 0; // What the last word said.

/** Who sets the clock of this machine does not change it. */
function ours(): number {
  return performance.timeOrigin + performance.now();
}

/** A word that has just come was written then. The smallest lag seen is the difference; it may drift. */
export function note(unixMs: number): void {
  const lag = ours() - unixMs;
  ahead = unixMs < heard - kStep || heard === 0 || lag < ahead ? lag : ahead + (lag - ahead) * 0.02;
  heard = unixMs;
}

/** Milliseconds since 1970. */
export function now(): number {
  return ours() - ahead;
}
