// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What happened to a node while its threads ran: deaths, and objects that went to disk.
import type { EventRow } from "./api";
import { bytes } from "./format";
import type { Digest } from "./live";

export interface Mark {
  time: number; // Milliseconds since 1970.
  node: number;
  tone: "bad" | "warn";
  words: string;
}

interface Spill {
  time: number;
  node: number;
  bytes: number;
}

const kKeptMs = 120_000; // As bars are.
const kMost = 500;
const kTogetherMs = 1000; // What a node spills within this is one mark.
const kMarked = new Set(["ACTOR_DIED", "NODE_DIED", "OUT_OF_MEMORY", "SPILL_FAILED"]);

export class Marks {
  private readonly events = new Map<string, Mark>();
  private spills: Spill[] = [];
  private readonly onDisk = new Map<number, number>();
  private newest = 0;

  /** In the order of their time, of each kind. */
  get all(): Mark[] {
    const words = (spill: Spill) => `${bytes(spill.bytes)} went to disk`;
    return [...this.events.values(), ...this.spills.map((one): Mark => ({ time: one.time, node: one.node, tone: "warn", words: words(one) }))];
  }

  /** Says whether there are other marks than before. */
  add(next: Digest): boolean {
    if (next.unix_ms < this.newest) this.spills = []; // The clock was set back: they would lie in the future.
    this.newest = next.unix_ms;
    const before = this.events.size + this.spills.length;
    let grew = false;
    for (const event of next.events) grew = this.addEvent(event) || grew;
    for (const node of next.nodes) grew = this.addSpill(node.node, node.store.spilled_bytes, next.unix_ms) || grew;
    this.trim();
    return grew || this.events.size + this.spills.length !== before;
  }

  private addEvent(event: EventRow): boolean {
    if (!kMarked.has(event.kind) || event.node_id === null || this.events.has(event.event_id)) return false;
    this.events.set(event.event_id, { time: event.time_ms, node: parseInt(event.node_id, 16), tone: "bad", words: event.message });
    return true;
  }

  private addSpill(node: number, onDisk: number, time: number): boolean {
    const before = this.onDisk.get(node);
    this.onDisk.set(node, onDisk);
    if (before === undefined || onDisk <= before) return false;
    const last = this.spills.findLast((one) => one.node === node);
    if (last !== undefined && time - last.time < kTogetherMs) last.bytes += onDisk - before;
    else this.spills.push({ time, node, bytes: onDisk - before });
    return true;
  }

  private trim(): void {
    this.spills = this.spills.filter((one) => one.time > this.newest - kKeptMs).slice(-kMost);
    for (const [id, mark] of this.events) {
      if (this.events.size > kMost || mark.time < this.newest - kKeptMs) this.events.delete(id);
    }
  }
}
