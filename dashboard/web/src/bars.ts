// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What threads ran lately: one ring of bars a lane, from the stream's 12-byte records.
import type { Digest, DigestLane } from "./live";

export const enum Kind {
  finished = 0,
  failed = 1,
  cancelled = 2,
  column = 3, // Many short calls, of which each pixel shows how busy the thread was.
}

export interface Bar {
  begin: number; // Milliseconds since 1970; so is the end.
  end: number;
  name: string;
  kind: Kind;
  share: number; // Of a column: 1 is busy all the time.
}

const kRecord = 12;
const kKeptMs = 120_000;
const kKeptBars = 6000; // Of a lane.
const kSilentMs = 10_000; // A lane without a word for so long has ended.

/** What cannot be read is left out: the page outlives what a server of another version sends. */
export function decode(lane: DigestLane, names: string[]): Bar[] {
  const text = atob(lane.bars);
  const raw = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const view = new DataView(raw.buffer);
  const bars: Bar[] = [];
  for (let at = 0; at + kRecord <= raw.length; at += kRecord) {
    const begin = (lane.base_us + view.getUint32(at, true)) / 1000;
    const name = names[view.getUint16(at + 8, true)];
    if (name === undefined) continue;
    bars.push({
      begin,
      end: begin + view.getUint32(at + 4, true) / 1000,
      name,
      kind: view.getUint8(at + 10),
      share: view.getUint8(at + 11) / 255,
    });
  }
  return bars;
}

export interface Lane {
  key: string;
  node: number;
  process: string;
  pid: number;
  thread: number;
  busy: number;
  bars: Bar[];
  running: { name: string; begin: number }[];
  heard: number; // Of the digest that named it last.
}

export class Lanes {
  readonly all = new Map<string, Lane>();
  leftOut = 0;
  private newest = 0;

  /** Takes a digest and gives what is new in it, lane by lane. Says whether there are other lanes. */
  add(next: Digest): { fresh: [Lane, Bar[]][]; changed: boolean } {
    const fresh: [Lane, Bar[]][] = [];
    // The clock was set back: what is there would lie in the future, and never grow old.
    let changed = next.unix_ms < this.newest && this.all.size > 0;
    if (changed) this.all.clear();
    this.newest = next.unix_ms;
    this.leftOut = next.nodes.reduce((sum, node) => sum + node.lanes_left_out, 0);
    for (const said of next.lanes) {
      const key = `${said.node}/${said.process}/${said.thread}`;
      let lane = this.all.get(key);
      if (lane === undefined) {
        lane = { key, node: said.node, process: said.process, pid: said.os_pid, thread: said.thread, busy: 0, bars: [], running: [], heard: 0 };
        this.all.set(key, lane);
        changed = true;
      }
      const bars = decode(said, next.names);
      lane.pid = said.os_pid;
      lane.busy = said.busy;
      lane.heard = next.unix_ms;
      lane.running = said.running.map((one) => ({ name: next.names[one.name] ?? "", begin: one.begin_ms }));
      lane.bars.push(...bars);
      this.trim(lane, next.unix_ms);
      if (bars.length > 0) fresh.push([lane, bars]);
    }
    for (const [key, lane] of this.all) {
      if (next.unix_ms - lane.heard < kSilentMs) continue;
      this.all.delete(key);
      changed = true;
    }
    return { fresh, changed };
  }

  /** By node and process, so that a lane stays in its place; those that are busiest, if there are too many. */
  ordered(most: number): Lane[] {
    let lanes = [...this.all.values()];
    if (lanes.length > most) lanes = lanes.sort((a, b) => b.busy - a.busy).slice(0, most);
    const number = (lane: Lane) => Number(lane.process.split(".")[1]);
    return lanes.sort((a, b) => a.node - b.node || number(a) - number(b) || a.thread - b.thread);
  }

  private trim(lane: Lane, now: number): void {
    const old = lane.bars.findIndex((bar) => bar.end > now - kKeptMs);
    const over = Math.max(old < 0 ? lane.bars.length : old, lane.bars.length - kKeptBars);
    if (over > kKeptBars / 8 || lane.bars.length > kKeptBars) lane.bars.splice(0, over);
  }
}
