// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the page makes of what it is told, without a browser: node units.mjs FOLDER, where FOLDER has
// src/ and node_modules/ of the page. Started by page_test.py.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";

const folder = process.argv[2];
const { build } = createRequire(`${folder}/`)("esbuild");

async function load(...names) {
  const contents = names.map((name) => `export * from "./src/${name}";`).join("\n");
  const made = await build({ stdin: { contents, resolveDir: folder }, bundle: true, write: false, format: "esm" });
  return import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`);
}

const { note, now, decode, Lanes, Marks, pieces, treeOf, callersOf, hottest, bytes, brief, duration, span, visit, follow, wantsToken, History, commandLine } =
  await load("bars", "marks", "ansi", "profile", "format", "clock", "api", "live", "shell");

function lane(records, more = {}) {
  const raw = Buffer.alloc(12 * records.length);
  for (const [i, [begin, length, name, kind, share]] of records.entries()) {
    raw.writeUInt32LE(begin, 12 * i);
    raw.writeUInt32LE(length, 12 * i + 4);
    raw.writeUInt16LE(name, 12 * i + 8);
    raw[12 * i + 10] = kind;
    raw[12 * i + 11] = share;
  }
  return { node: 1, process: "1.3", os_pid: 7, thread: 0, busy: 0.5, base_us: 5_000_000, bars: raw.toString("base64"), running: [], ...more };
}

test("bars are 12 bytes each, and what cannot be read is left out", () => {
  const bars = decode(lane([[1000, 2000, 0, 1, 255], [4000, 10, 1, 3, 51], [0, 1, 9, 0, 0]]), ["f", "g"]);
  assert.deepEqual(bars, [
    { begin: 5001, end: 5003, name: "f", kind: 1, share: 1 },
    { begin: 5004, end: 5004.01, name: "g", kind: 3, share: 0.2 },
  ]);
  assert.deepEqual(decode({ ...lane([]), bars: Buffer.from("short").toString("base64") }, ["f"]), []);
});

test("a lane keeps two minutes, stays in its place, and goes when nothing is heard of it", () => {
  const lanes = new Lanes();
  const digest = (ms, list) => ({ unix_ms: ms, period_ms: 250, nodes: [{ lanes_left_out: 3 }], late: [], functions: [], names: ["f"], events: [], lanes: list });
  assert.ok(lanes.add(digest(5000, [lane([[0, 1, 0, 0, 255]], { process: "1.10", busy: 0.9 }), lane([], { process: "1.9" })])).changed);
  assert.deepEqual(lanes.ordered(10).map((one) => one.process), ["1.9", "1.10"]);
  assert.deepEqual(lanes.ordered(1).map((one) => one.process), ["1.10"]); // The busiest.
  assert.equal(lanes.leftOut, 3);
  const { fresh, changed } = lanes.add(digest(5250, [lane([[0, 1, 0, 0, 255]], { process: "1.10" })]));
  assert.equal(changed, false);
  assert.equal(fresh[0][1].length, 1);
  lanes.add(digest(16_000, [lane([], { process: "1.10" })]));
  assert.deepEqual(lanes.ordered(10).map((one) => one.process), ["1.10"]);
  for (let i = 0; i < 40; ++i) {
    const many = Array.from({ length: 500 }, (_, at) => [at, 1, 0, 0, 255]);
    lanes.add(digest(16_000 + i * 250, [lane(many, { process: "1.10", base_us: (16_000 + i * 250) * 1000 })]));
  }
  assert.ok(lanes.ordered(1)[0].bars.length <= 6000);
});

/** A node that has done `finished` calls, and has so much on disk. */
function nodeWith(finished, spilled_bytes = 0, node = 1) {
  return { node, finished, failed: 0, cancelled: 0, waiting: 0, lanes_left_out: 0, store: { spilled_bytes } };
}

function digestAt(unix_ms, nodes, more = {}) {
  return { unix_ms, period_ms: 250, nodes, late: [], functions: [], names: [], events: [], lanes: [], ...more };
}

test("a clock of the server that is set back stops neither the rates nor what is drawn", () => {
  const history = new History();
  for (const [second, finished] of [[0, 0], [1, 100], [2, 200]]) history.add(digestAt(3_600_000 + second * 1000, [nodeWith(finished)]));
  assert.deepEqual(history.finished, [100, 100]);
  for (const [second, finished] of [[0, 300], [1, 400], [2, 450]]) history.add(digestAt(second * 1000, [nodeWith(finished)]));
  // The chart takes times that grow: what would lie in the future is gone.
  assert.deepEqual(history.time, [1, 2]);
  assert.deepEqual(history.finished, [100, 50]);
  const lanes = new Lanes();
  lanes.add(digestAt(3_600_000, [nodeWith(0)], { lanes: [lane([], { process: "1.9" })] }));
  const { changed } = lanes.add(digestAt(1000, [nodeWith(0)], { lanes: [lane([], { process: "1.10" })] }));
  assert.equal(changed, true);
  assert.deepEqual(lanes.ordered(10).map((one) => one.process), ["1.10"]);
});

test("deaths and what goes to disk are marks over the lanes of their node", () => {
  const node_id = (2).toString(16).padStart(56, "0");
  const event = (event_id, kind, message) => ({ event_id, kind, message, node_id, time_ms: 1500, severity: "ERROR", job_id: null, id: null });
  const death = event("1", "ACTOR_DIED", "actor Counter (pid 7) died");
  const marks = new Marks();
  // What was on disk before the page was opened is no news.
  assert.equal(marks.add(digestAt(1000, [nodeWith(0, 4096, 1)])), false);
  assert.equal(marks.add(digestAt(2000, [nodeWith(0, 4096 + 1024, 1)], { events: [death, event("2", "JOB_STATE", "job 3 has ended")] })), true);
  assert.equal(marks.add(digestAt(2250, [nodeWith(0, 4096 + 2048, 1)], { events: [death] })), true); // Told again, it is one.
  assert.equal(marks.add(digestAt(2500, [nodeWith(0, 0, 1)])), false); // Freed.
  assert.deepEqual(marks.all, [
    { time: 1500, node: 2, tone: "bad", words: "actor Counter (pid 7) died" },
    { time: 2000, node: 1, tone: "warn", words: "2.0 KiB went to disk" },
  ]);
  assert.equal(marks.add(digestAt(130_000, [nodeWith(0, 0, 1)])), true);
  assert.deepEqual(marks.all, []); // As old as bars get.
});

test("a log that wants a login leads to it", async () => {
  const before = globalThis.fetch;
  globalThis.fetch = async () => new Response("Who are you?", { status: 401 });
  try {
    await assert.rejects(follow("/api/sheaf/jobs/x/logs", () => undefined, new AbortController().signal), /Who are you/);
  } finally {
    globalThis.fetch = before;
  }
  assert.equal(wantsToken.value, true);
});

test("a command line is for the shell whatever the address says", () => {
  assert.equal(
    commandLine("train_runs", "", ["name~it's $(x)", "state!=ERROR"], "-steps", 50),
    "sheaf list train-runs --filter 'name~it'\\''s $(x)' --filter 'state!=ERROR' --order=-steps --limit 50",
  );
  assert.equal(commandLine("tasks", "--ended=only", ["name=f"], "", 100), "sheaf list tasks --ended=only --filter name=f --limit 100");
  assert.equal(commandLine("actors", "", [], "x; rm -r /", 50), "sheaf list actors --order='x; rm -r /' --limit 50");
});

test("colours of terminals are kept, and all else that steers them is dropped", () => {
  assert.deepEqual(pieces("\x1b[1;31mred\x1b[0m \x1b[38;5;200mplain\x1b[2K\x1b]0;title\x07!\x00"), [
    { text: "red", classes: "ansi-1 ansi-bold" },
    { text: " ", classes: "" },
    { text: "plain", classes: "" },
    { text: "!", classes: "" },
  ]);
  assert.deepEqual(pieces("<b>&amp;"), [{ text: "<b>&amp;", classes: "" }]);
});

test("a profile has the same time from the top and by own time, recursion and all", () => {
  const row = (name, parent, self_us) => ({ function: name, file: "x.py", line: 1, job: 1, parent, self_us });
  const tree = treeOf([row("f", null, 10), row("g", 0, 30), row("f", 1, 5), row("g", 2, 55), row("lost", 99, 1)]);
  assert.equal(tree.total, 101);
  assert.equal(tree.children[0].total, 100);
  const callers = callersOf(tree);
  assert.equal(callers.total, 101);
  assert.deepEqual(hottest(tree, 2).map((one) => [one.name, one.self]), [["g", 85], ["f", 15]]);
  assert.equal(callers.children[0].name, "g");
  let frames = 0;
  visit(callers, () => (frames += 1));
  assert.ok(frames > 4);
});

test("times are told by the cluster's clock, however wrong the browser's is", () => {
  const off = (ms) => Math.abs(now() - (Date.now() - ms));
  note(Date.now() - 3_600_000 - 80); // It took 80 ms to come.
  note(Date.now() - 3_600_000);
  note(Date.now() - 3_600_000 - 50);
  assert.ok(off(3_600_000) < 20, `${off(3_600_000)}`);
  note(Date.now() - 7_200_000); // It was set back by an hour.
  assert.ok(off(7_200_000) < 20, `${off(7_200_000)}`);
});

test("figures are written as the command line writes them", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 1_048_530, 2 ** 40].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 TiB"]);
  assert.deepEqual([0, 7, 9999, 10_000, 1_234_567, 2.5e9, 3e12, 0.25].map(brief), ["0", "7", "9,999", "10.0k", "1.23M", "2.50G", "3.00T", "0.25"]);
  assert.deepEqual([850, 12_300, 4e6, 1.5e9, 300e9].map(duration), ["850 ns", "12.3 µs", "4.0 ms", "1.5 s", "5 min"]);
  assert.deepEqual([0.2, 59, 7200, 12_000, 3 * 86400].map(span), ["now", "59 s", "2 h", "3 h 20 min", "3 d"]);
});
