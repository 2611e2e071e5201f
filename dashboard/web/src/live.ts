// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The one event stream of the page: what the cluster does now, some times a second.
import { computed, signal } from "@preact/signals";
import { type EventRow, pageVersion, wantsToken, whyRefused } from "./api";
import { note } from "./clock";

export interface DigestNode {
  node: number;
  unix_ms: number;
  resources: Record<string, [number, number]>; // Total and available.
  workers: Record<string, number>;
  processes: number;
  waiting: number;
  infeasible: number;
  store: {
    capacity_bytes: number;
    used_bytes: number;
    pinned_bytes: number;
    spilled_bytes: number;
    objects: number;
  };
  host: Record<string, number | null>;
  finished: number;
  failed: number;
  cancelled: number;
  events_lost: number;
  lanes_left_out: number;
}

export interface DigestFunction {
  name: string;
  type: string;
  job: number;
  finished: number;
  failed: number;
  cancelled: number;
  per_second: number;
  busy: number;
}

export interface DigestLane {
  node: number;
  process: string;
  os_pid: number;
  thread: number;
  busy: number;
  base_us: number;
  bars: string;
  running: { name: number; begin_ms: number }[];
}

export interface Digest {
  unix_ms: number;
  period_ms: number;
  nodes: DigestNode[];
  late: number[];
  functions: DigestFunction[];
  names: string[];
  lanes: DigestLane[];
  events: EventRow[];
}

export type Connection = "connecting" | "live" | "stale" | "absent";

export const digest = signal<Digest | null>(null);
export const connection = signal<Connection>("connecting");
/** When the last digest came, by performance.now(), which no one sets. */
export const heardAt = signal(0);
/** How often the stream has been opened: each begins with the last minute. */
export const streams = signal(0);
export const events = signal<EventRow[]>([]);
/** Why the dashboard itself hears nothing of the cluster; empty: it does. */
export const trouble = signal("");
/** Why the dashboard lets this page have no stream, in its words; empty: it does, or nobody knows. */
export const refusal = signal("");
/** Digests that this page was too slow for. */
export const skipped = signal(0);

const kKeptEvents = 200;
const kFirstPauseMs = 500;
const kLongestPauseMs = 15_000;

/** What the last minutes were like, second by second. */
export class History {
  static readonly seconds = 300;
  readonly time: number[] = [];
  readonly finished: number[] = [];
  readonly failed: number[] = [];
  readonly busy: number[] = [];
  readonly waiting: number[] = [];
  readonly byName = new Map<string, number[]>();
  private before: { ms: number; totals: Map<number, DigestNode> } | null = null;

  add(next: Digest): void {
    if (this.before !== null && next.unix_ms < this.before.ms) this.turnBack(next.unix_ms);
    // The first rate is shown as soon as there is one: a quarter of a second of it.
    const wanted = this.time.length === 0 ? 200 : 950;
    if (this.before !== null && next.unix_ms - this.before.ms < wanted) return;
    const totals = new Map(next.nodes.map((node) => [node.node, node]));
    if (this.before !== null) this.push(next, totals, (next.unix_ms - this.before.ms) / 1000);
    this.before = { ms: next.unix_ms, totals };
  }

  /** The next digest is not the one after the last: rates begin anew. */
  interrupt(): void {
    this.before = null;
  }

  /** The dashboard's clock was set back: what came after `ms` would lie in the future, and no rate spans it. */
  private turnBack(ms: number): void {
    this.interrupt();
    const past = this.time.findIndex((time) => time * 1000 >= ms);
    if (past >= 0) for (const list of this.lists()) list.splice(past);
  }

  private lists(): number[][] {
    return [this.time, this.finished, this.failed, this.waiting, this.busy, ...this.byName.values()];
  }

  private push(next: Digest, totals: Map<number, DigestNode>, seconds: number): void {
    const rate = (of: (node: DigestNode) => number) => {
      let sum = 0;
      for (const [number, node] of totals) {
        const old = this.before!.totals.get(number);
        if (old) sum += Math.max(0, of(node) - of(old));
      }
      return sum / seconds;
    };
    this.time.push(next.unix_ms / 1000);
    this.finished.push(rate((node) => node.finished));
    this.failed.push(rate((node) => node.failed));
    this.waiting.push(sum(next.nodes, (node) => node.waiting));
    this.busy.push(sum(next.functions, (one) => one.busy));
    const seen = new Map<string, number>();
    for (const one of next.functions) seen.set(one.name, (seen.get(one.name) ?? 0) + one.per_second);
    for (const name of seen.keys()) {
      if (!this.byName.has(name)) this.byName.set(name, new Array<number>(this.time.length - 1).fill(0));
    }
    for (const [name, rates] of this.byName) rates.push(seen.get(name) ?? 0);
    this.trim();
  }

  private trim(): void {
    const over = this.time.length - History.seconds;
    if (over <= 0) return;
    for (const list of this.lists()) list.splice(0, over);
    for (const [name, rates] of this.byName) {
      if (!rates.some((rate) => rate > 0)) this.byName.delete(name);
    }
  }
}

export function sum<T>(list: readonly T[], of: (one: T) => number): number {
  return list.reduce((total, one) => total + of(one), 0);
}

export const history = new History();
/** Grows with each second of history. */
export const historyLength = signal(0);

/** Total and available of each resource, over all nodes. */
export const resources = computed(() => {
  const all: Record<string, [number, number]> = {};
  for (const node of digest.value?.nodes ?? []) {
    for (const [name, [total, available]] of Object.entries(node.resources)) {
      const entry = (all[name] ??= [0, 0]);
      entry[0] += total;
      entry[1] += available;
    }
  }
  return all;
});

let source: EventSource | null = null;
let lanes = 0;
let pauseMs = kFirstPauseMs;
let timer = 0;
let triedAt = 0;
let version: string | null = null;

/** So many lanes of each node come from now on; 0: none. */
export function wantLanes(wanted: number): void {
  if (wanted === lanes && source !== null) return;
  lanes = wanted;
  open();
}

function open(): void {
  clearTimeout(timer);
  source?.close();
  source = null;
  if (document.hidden || wantsToken.value) return;
  triedAt = performance.now();
  streams.value++;
  source = new EventSource(`/api/sheaf/live?lanes=${lanes}`);
  const on = <T>(name: string, does: (said: T) => void) =>
    source!.addEventListener(name, (event) => does(JSON.parse((event as MessageEvent<string>).data) as T));
  on<Digest>("digest", take);
  on<{ message: string }>("trouble", (said) => {
    trouble.value = said.message;
    if (digest.value !== null) connection.value = "stale";
  });
  on<{ events: number }>("skipped", (said) => (skipped.value += said.events));
  source.onerror = () => void retry();
}

/** The browser's own retry knows no back-off. */
async function retry(): Promise<void> {
  source?.close();
  source = null;
  history.interrupt();
  connection.value = digest.value === null ? "connecting" : "stale";
  timer = window.setTimeout(open, pauseMs * (0.75 + Math.random() / 2));
  pauseMs = Math.min(kLongestPauseMs, pauseMs * 2);
  try {
    const now = await pageVersion();
    if (version !== null && now !== null && now !== version) location.reload();
    version ??= now;
    await askWhyNot(now !== null);
  } catch {
    refusal.value = ""; // The dashboard is away; the timer asks again.
  }
}

/** Does the dashboard refuse us, or, when it has our page, does it have no such stream? */
async function askWhyNot(isOurs: boolean): Promise<void> {
  const stop = new AbortController();
  const answer = await fetch(`/api/sheaf/live?lanes=0`, { signal: stop.signal });
  const isLogin = answer.status === 401;
  if (isLogin) wantsToken.value = true;
  if (answer.status === 404 && isOurs) connection.value = "absent";
  refusal.value = answer.ok || isLogin || answer.status === 404 ? "" : await whyRefused(answer);
  stop.abort(); // A stream has no end.
}

function take(next: Digest): void {
  pauseMs = kFirstPauseMs;
  heardAt.value = performance.now();
  refusal.value = "";
  note(next.unix_ms);
  if (next.events.length > 0) addEvents(next.events);
  history.add(next);
  historyLength.value = history.time[history.time.length - 1] ?? 0;
  digest.value = withLate(next);
  connection.value = "live";
  trouble.value = "";
  for (const listener of listeners) listener(next);
}

/** A node that is late is shown as it was. */
function withLate(next: Digest): Digest {
  const late = new Set(next.late);
  const old = digest.value?.nodes.filter((node) => late.has(node.node)) ?? [];
  return old.length === 0 ? next : { ...next, nodes: [...next.nodes, ...old].sort((a, b) => a.node - b.node) };
}

export function addEvents(more: EventRow[]): void {
  const known = new Map(events.value.map((event) => [event.event_id, event]));
  for (const event of more) known.set(event.event_id, event);
  events.value = [...known.values()]
    .sort((a, b) => (a.event_id < b.event_id ? 1 : -1))
    .slice(0, kKeptEvents);
}

const listeners = new Set<(next: Digest) => void>();
/** Each digest, for what draws by itself. Returns what ends it. */
export function onDigest(listener: (next: Digest) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function startLive(): void {
  open();
  void pageVersion().then((now) => (version = now), () => undefined);
  document.addEventListener("visibilitychange", () => {
    history.interrupt();
    open();
  });
  wantsToken.subscribe((wants) => {
    if (!wants && source === null) open();
  });
  // A server that has stopped says nothing, and TCP neither.
  setInterval(() => {
    const silence = performance.now() - heardAt.value;
    const patience = 3000 + 3 * (digest.value?.period_ms ?? 1000);
    if (connection.value === "live" && silence > patience && !document.hidden) connection.value = "stale";
    const waited = performance.now() - Math.max(heardAt.value, triedAt);
    if (source !== null && waited > 20_000 + patience && !document.hidden) void retry();
  }, 1000);
}

/** CPU and the like of one node as shares. */
export function used(pair: [number, number] | undefined): number {
  return pair && pair[0] > 0 ? (pair[0] - pair[1]) / pair[0] : 0;
}
