// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The cluster's clock, as its server says: that of the machine of the browser may be wrong.

let ahead = 0; // Of ours before the cluster's.
let heard = false;

/** A word that has just come was written then. The smallest lag seen is the difference; it may drift. */
export function note(unixMs: number): void {
  const lag = Date.now() - unixMs;
  ahead = !heard || lag < ahead ? lag : ahead + (lag - ahead) * 0.02;
  heard = true;
}

/** Milliseconds since 1970. */
export function now(): number {
  return Date.now() - ahead;
}
