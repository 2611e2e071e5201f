// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the page says when something is wrong, and that it goes on when it is not any more.
import assert from "node:assert/strict";
import net from "node:net";
import { ask, kNarrow, kWide, open, picture, settled, told, tooWide, until, violations } from "./chromium.mjs";
import { test } from "./suite.mjs";

test("a page that fails leaves the others as they are", async () => {
  const page = await open("");
  await settled(page);
  const title = (name) => page.getByRole("heading", { level: 1, name }).waitFor();
  const follow = (name) => page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
  // As a server of another version might answer.
  const broken = { rows: null, total: 0, next: null, groups: null, truncated: false, late_nodes: [], events_lost: 0 };
  await page.route("**/api/sheaf/actors*", (route) => route.fulfill({ json: broken }));
  await follow("Actors");
  await title("This page has failed");
  await picture(page, "failed-page");
  assert.deepEqual(await violations(page), []);
  await follow("Nodes");
  await title("Nodes");
  await follow("Overview");
  await title("Overview");
  await page.unroute("**/api/sheaf/actors*");
  await follow("Actors");
  await title("Actors");
  await until("they are listed", async () => (await page.locator("tbody tr").count()) > 0);
  await page.context().close();
});

test("an order is given once, and its error is not shown the next time", async () => {
  const page = await open("nodes/2");
  let asked = 0;
  let release = () => undefined;
  await page.route("**/api/sheaf/nodes/2/drain", async (route) => {
    asked += 1;
    await new Promise((then) => (release = then));
    await route.fulfill({ status: 503, body: "The head does not answer; try again." });
  });
  await page.getByRole("button", { name: "Drain…" }).click();
  const confirm = page.locator("dialog[open] .actions .danger");
  await confirm.click();
  await until("it has been asked", () => asked === 1);
  assert.equal(await confirm.isDisabled(), true);
  await confirm.click({ force: true });
  release();
  await page.getByRole("alert").getByText("The head does not answer").waitFor();
  assert.equal(asked, 1);
  assert.equal(await confirm.isDisabled(), false); // It may be given again.
  await page.locator("dialog[open]").getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Drain…" }).click();
  await confirm.waitFor();
  assert.equal(await page.locator("dialog[open] .problem").count(), 0);
  await page.context().close();
});

test("a page that gets no stream says why, and is live when there is room", async () => {
  const stop = new AbortController();
  const others = [];
  for (let i = 0; i < 64; ++i) others.push(fetch(`${told.url}/api/sheaf/live?lanes=0`, { signal: stop.signal }));
  try {
    await Promise.all(others);
    const page = await open("");
    await page.getByRole("alert").getByText(/no live figures: Too many/).waitFor();
    await page.getByRole("status").getByText("refused", { exact: true }).waitFor();
    await picture(page, "refused");
    assert.deepEqual(await violations(page), []);
    await page.setViewportSize(kNarrow);
    assert.deepEqual(await tooWide(page), []);
    await page.setViewportSize(kWide);
    stop.abort();
    await settled(page);
    await until("nothing is said any more", async () => (await page.getByRole("alert").count()) === 0);
    await page.context().close();
  } finally {
    stop.abort();
    await Promise.allSettled(others);
  }
});

/** Between a browser and the dashboard; `freeze`: what has asked for `path` stays connected, and carries nothing. */
async function proxy(path) {
  const { hostname, port } = new URL(told.url);
  const pairs = new Set();
  const asked = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(Number(port), hostname);
    const pair = [near, far];
    pairs.add(pair);
    near.on("data", (data) => data.includes(`GET ${path} `) && asked.add(pair));
    near.pipe(far);
    far.pipe(near);
    for (const socket of pair) {
      socket.on("error", () => undefined);
      socket.on("close", () => (pairs.delete(pair), pair.forEach((one) => one.destroy())));
    }
  });
  await new Promise((then) => server.listen(0, "127.0.0.1", then));
  const freeze = () => {
    assert.ok(asked.size > 0);
    for (const [near, far] of asked) {
      near.unpipe(far);
      far.unpipe(near);
      near.pause();
      far.pause();
    }
    asked.clear();
  };
  const end = () => {
    server.close();
    for (const pair of pairs) pair.forEach((socket) => socket.destroy());
  };
  return { url: `http://127.0.0.1:${server.address().port}`, freeze, end };
}

test("a log whose connection is dead, though nobody has closed it, is followed anew", async () => {
  const submission_id = `half-open-${Date.now()}`;
  const enough = `${told.scratch}/${submission_id}`;
  await ask("submit", submission_id, `python3 -uc "import os, time\ni = 0\nwhile not os.path.exists('${enough}'): print('line', i, flush=True); i += 1; time.sleep(0.2)"`);
  const between = await proxy(`/api/sheaf/jobs/${submission_id}/logs`);
  try {
    const page = await open(`jobs/${submission_id}`, { at: between.url });
    const log = page.getByRole("log");
    await log.getByText("line 3", { exact: true }).waitFor();
    const last = async () => Number(/line (\d+)\s*$/.exec(await log.innerText())[1]);
    between.freeze();
    const seen = await last();
    await until("it goes on, behind what has been seen", async () => (await last()) > seen + 20);
    const lines = (await log.innerText()).match(/line \d+/g);
    assert.deepEqual(lines, lines.map((_, i) => `line ${i}`)); // Each once, from the first on.
    between.freeze();
    await ask("touch", enough);
    await page.locator(".card-head .state", { hasText: "ended" }).waitFor(); // Though nobody has told the old connection.
    await page.context().close();
  } finally {
    between.end();
    await ask("touch", enough);
  }
});
