// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the page shows of a real cluster, and what may be done with it. Started by browser.py.
import assert from "node:assert/strict";
import http from "node:http";
import { ask, browser, kNarrow, kWide, open, picture, settled, told, tooWide, until, violations } from "./chromium.mjs";
import { cases, test } from "./suite.mjs";
import "./profile_cases.mjs";
import "./table_cases.mjs";
import "./trouble_cases.mjs";

const kPages = ["", "tasks", "stream", "functions", "actors", "nodes", "jobs", "train", "logs", "objects", "groups", "metrics"];

for (const path of kPages) {
  test(`page ${path || "overview"}: shows the cluster, for everybody, wide and narrow, light and dark`, async () => {
    for (const [size, scheme, mark] of [[kWide, "light", ""], [kWide, "dark", "-dark"], [kNarrow, "light", "-narrow"]]) {
      const page = await open(path, { size, scheme });
      await settled(page);
      if (path === "" || path === "stream") await page.waitForFunction(() => document.querySelector("canvas") !== null);
      await page.waitForTimeout(path === "" || path === "stream" ? 4000 : 600); // For the picture: there is more to see.
      await picture(page, `${path || "overview"}${mark}`);
      assert.deepEqual(await violations(page), []);
      assert.deepEqual(await tooWide(page), [], `at ${size.width} pixels`);
      assert.deepEqual(page.wrong, []);
      await page.context().close();
    }
  });
}

test("why a call waits that no node can run is read from the page", async () => {
  const task = await ask("infeasible");
  const page = await open("tasks?ended=false&filter=name%3Dneeds_gpus");
  await page.getByRole("link", { name: task.slice(-12) }).click();
  const why = page.locator(".why");
  await why.getByText("GPU").waitFor();
  await picture(page, "why");
  assert.match(await why.innerText(), /GPU/);
  await page.goto(told.url);
  await page.getByText("infeasible").first().waitFor();
  assert.match(await page.locator(".card", { hasText: "What waits, and why" }).innerText(), /GPU/);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a job is submitted, followed and stopped in the browser", async () => {
  const page = await open("jobs");
  await page.getByRole("button", { name: "Submit a job…" }).click();
  const id = `from-the-page-${Date.now()}`;
  await page.getByLabel("Command").fill(`python3 -uc "import time\nfor i in range(1000): print('line', i, flush=True); time.sleep(0.2)"`);
  await page.getByLabel("Id").fill(id);
  await picture(page, "submit");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: `Job ${id}` }).waitFor();
  await page.getByRole("log").getByText("line 3", { exact: true }).waitFor();
  await picture(page, "job");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop the job" }).click();
  await page.locator(".facts .state", { hasText: "stopped" }).waitFor();
  await page.locator(".card-head .state", { hasText: "ended" }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("an actor is killed in the browser", async () => {
  const page = await open("actors?filter=name%3Dspare");
  await page.getByRole("link", { name: "spare", exact: true }).click();
  await page.getByRole("button", { name: "Kill…" }).click();
  await picture(page, "kill");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Kill the actor" }).click();
  await page.locator(".facts .state", { hasText: "dead" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Kill…" }).count(), 0);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a killed worker's death is seen within two seconds", async () => {
  const page = await open("");
  await settled(page);
  const deaths = page.locator(".events li", { hasText: "Counter" });
  const before = await deaths.count();
  const stream = await open("stream");
  await stream.getByRole("img", { name: /^Task stream of \d+ threads/ }).waitFor();
  await ask("kill_actor");
  const began = Date.now();
  await until("the death is among the events", async () => (await deaths.count()) > before);
  const took = Date.now() - began;
  assert.ok(took < 2000, `after ${took} ms`);
  await page.goto(`${told.url}/actors?filter=state%3DDEAD`);
  const dead = page.locator("tbody tr", { hasText: "counter-2" });
  await dead.waitFor();
  assert.match(await dead.locator("td").last().innerText(), /^its process .*signal 9/);
  await picture(page, "death");
  await page.context().close();
  await stream.getByRole("img", { name: /, deaths and failures: \d/ }).waitFor();
  await picture(stream, "stream-mark");
  await stream.emulateMedia({ colorScheme: "dark" });
  await picture(stream, "stream-mark-dark");
  assert.deepEqual(stream.wrong, []);
  await stream.context().close();
});

test("a training run is followed to its ranks, and says why its group was formed anew", async () => {
  const rows = async () => (await ask("list", "train-runs")).train_runs;
  await until("the short run has ended", async () => (await rows()).some((row) => row.name === "short" && row.state === "FINISHED"));
  const page = await open("train");
  const short = page.locator("tbody tr", { hasText: "short" });
  await short.getByText("finished").waitFor();
  assert.match(await short.innerText(), /loss 0\.05, learning_rate 0\.01, phase warm/);
  await page.locator("tbody tr", { hasText: "endless" }).getByRole("link").first().click();
  await page.getByRole("heading", { level: 1, name: "endless" }).waitFor();
  await page.locator(".facts .state", { hasText: "running" }).waitFor();
  await until("the lost worker is named", async () => /rank 1 \(pid \d+\) is lost/.test(await page.getByRole("region", { name: "Groups" }).innerText()));
  await until("its metrics are drawn", async () => (await page.locator(".charts canvas").count()) === 2);
  await picture(page, "train-run");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize(kNarrow);
  assert.deepEqual(await tooWide(page), []);
  await page.setViewportSize(kWide);
  const rank = page.getByRole("region", { name: "Ranks" }).locator("tbody tr").first();
  const process = (await rank.locator("td").nth(2).innerText()).trim();
  await rank.getByRole("link", { name: "log" }).click();
  await page.locator("h2", { hasText: /^worker-\d+\.\d+\.out$/ }).waitFor();
  await page.goBack();
  await rank.getByRole("link").nth(2).click();
  await page.getByRole("heading", { level: 1, name: "TrainWorker" }).waitFor();
  assert.equal((await page.locator(".facts div", { has: page.locator("dt", { hasText: /^Process$/ }) }).locator("dd").innerText()).trim(), process);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("objects that may have been forgotten are told apart", async () => {
  const forgotten = (row) => row.may_leak && row.size_bytes >= 1 << 20;
  await until("they are old enough", async () => (await ask("list", "objects")).objects.filter(forgotten).length === 8);
  const page = await open("objects");
  await settled(page);
  await page.getByRole("button", { name: "Perhaps forgotten" }).click();
  assert.match(page.url(), /filter=may_leak%3Dtrue/);
  // The eight that the driver put, and nothing that a call still makes.
  const rows = (text) => page.locator(".listing tbody tr", { hasText: text }).count();
  await until("they alone are listed", async () => (await rows("1.0 MiB")) === 8 && (await rows("pending")) === 0);
  await picture(page, "forgotten");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.locator(".listing tbody .state", { hasText: "pending" }).first().waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("names that look like HTML are text", async () => {
  const hostile = await ask("hostile");
  const page = await open("functions");
  await settled(page);
  await page.locator("tbody").getByText(hostile.split("\u202e")[0]).first().click();
  await page.getByRole("heading", { level: 1 }).getByText("<img").waitFor();
  await page.locator(".facts dt", { hasText: /^Finished$/ }).waitFor(); // By its name, whatever is in it, its calls are found.
  await picture(page, "hostile");
  assert.equal(await page.locator("main img").count(), 0);
  assert.match(await page.title(), /Sheaf/);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("an unknown page, call, node or job says that there is none", async () => {
  for (const path of ["cats", "nodes/99", "nodes/x", "tasks/0123", "actors/12", "functions/none", "tasks/a/b", "jobs/none", "train/none"]) {
    const page = await open(path);
    await page.getByText(/There is no|No function of this name|does not exist/).first().waitFor();
    // A browser notes each 404 by itself.
    assert.deepEqual(page.wrong.filter((one) => !one.includes("404")), []);
    await page.context().close();
  }
});

test("the keyboard alone leads everywhere", async () => {
  const page = await open("");
  await settled(page);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "To the content");
  const reach = async (name) => {
    for (let i = 0; i < 60; ++i) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.textContent.trim())) === name) return page.keyboard.press("Enter");
    }
    throw new Error(`${name} is not reached`);
  };
  await reach("Tasks");
  await page.getByRole("heading", { level: 1, name: "Tasks" }).waitFor();
  await settled(page);
  await page.keyboard.press("/");
  await page.keyboard.type("name=prepare");
  await page.keyboard.press("Enter");
  await until("only prepare is left", async () => {
    const names = await page.locator("tbody .name").allInnerTexts();
    return names.length > 0 && names.every((name) => name.trim() === "prepare");
  });
  assert.match(page.url(), /filter=name%3Dprepare/);
  await page.goto(`${told.url}/stream`);
  const canvas = page.locator(".picture canvas");
  await canvas.focus();
  await page.keyboard.press(" ");
  await page.getByRole("button", { name: "Go on" }).waitFor();
  await page.keyboard.press("+");
  await page.keyboard.press("ArrowLeft");
  await picture(page, "stream-paused");
  await page.keyboard.press(" ");
  await page.getByRole("button", { name: "Pause" }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

/** A page of another port: it can send what any page can. */
async function foreign(run) {
  const server = http.createServer((_request, response) => response.end("<title>elsewhere</title>"));
  await new Promise((then) => server.listen(0, "127.0.0.1", then));
  const context = await browser.newContext();
  const page = await context.newPage();
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    return await run(page);
  } finally {
    await context.close();
    server.close();
  }
}

test("a page from elsewhere changes nothing and reads nothing", async () => {
  const before = (await (await fetch(`${told.url}/api/jobs`)).json()).length;
  const read = await foreign((page) =>
    page.evaluate(async (url) => {
      await fetch(`${url}/api/jobs`, { method: "POST", mode: "no-cors", body: JSON.stringify({ entrypoint: "echo stolen" }) }).catch(() => null);
      await fetch(`${url}/api/sheaf/nodes/2/drain`, { method: "POST", mode: "no-cors" }).catch(() => null);
      return fetch(`${url}/api/sheaf/nodes`).then((answer) => answer.text(), () => "refused");
    }, told.url),
  );
  assert.equal(read, "refused");
  assert.equal((await (await fetch(`${told.url}/api/jobs`)).json()).length, before);
  const { nodes } = await ask("list", "nodes");
  assert.ok(nodes.every((node) => node.state === "ALIVE"));
});

test("a Host that is not ours is refused", async () => {
  const { hostname, port } = new URL(told.url);
  const status = await new Promise((then, fail) => {
    http.get({ host: hostname, port, path: "/api/sheaf/nodes", headers: { Host: `rebound.example:${port}` } }, (answer) => then(answer.statusCode)).on("error", fail);
  });
  assert.equal(status, 403);
});

test("a dashboard that is killed is missed, and the next one found", async () => {
  const page = await open("");
  await settled(page);
  const gone = page.getByRole("alert").getByText("The connection is lost.").waitFor();
  await ask("kill_dashboard");
  await gone;
  await until("the page is live again", async () => (await page.getByRole("alert").count()) === 0);
  await settled(page);
  await page.context().close();
});

test("a log that is followed goes on after the dashboard's death, whole", async () => {
  const page = await open("jobs");
  await page.getByRole("button", { name: "Submit a job…" }).click();
  const id = `followed-${Date.now()}`;
  await page.getByLabel("Command").fill(`python3 -uc "import time\nfor i in range(1000): print('line', i, flush=True); time.sleep(0.2)"`);
  await page.getByLabel("Id").fill(id);
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  const log = page.getByRole("log");
  await log.getByText("line 3", { exact: true }).waitFor();
  const lost = page.locator(".card-head .state", { hasText: "lost, tries again" }).waitFor();
  await ask("kill_dashboard");
  await lost;
  await page.locator(".card-head .state", { hasText: "follows it" }).waitFor();
  const last = Number(/line (\d+)\s*$/.exec(await log.innerText())[1]);
  await log.getByText(`line ${last + 5}`, { exact: true }).waitFor();
  const seen = (await log.innerText()).match(/line \d+/g);
  assert.deepEqual(seen, seen.map((_, i) => `line ${i}`)); // Each once, from the first on.
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop the job" }).click();
  await page.locator(".card-head .state", { hasText: "ended" }).waitFor();
  await page.context().close();
});

test("from elsewhere one logs in with the token, and may only look", async () => {
  const [url, token] = await ask("serve_beyond");
  const page = await open("", { at: url });
  const field = page.getByLabel("Token");
  await field.fill("wrong");
  await page.getByRole("button", { name: "Show the cluster" }).click();
  await page.getByRole("alert").getByText("The token is wrong.").waitFor();
  await picture(page, "login");
  assert.deepEqual(await violations(page), []);
  await field.fill(token);
  await page.getByRole("button", { name: "Show the cluster" }).click();
  await settled(page);
  await page.goto(`${url}/jobs`);
  await page.getByRole("button", { name: "Submit a job…" }).click();
  await page.getByLabel("Command").fill("echo no");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("alert").getByText("Pages can only look here").waitFor();
  assert.deepEqual(page.wrong.filter((one) => !/status of 40[13]/.test(one)), []);
  await page.context().close();
});

test("fifty nodes are a map, in which one finds each", async () => {
  await ask("grow", 50);
  const page = await open("nodes");
  await settled(page);
  const squares = page.locator(".heat a");
  await until("each node is a square", async () => (await squares.count()) === 50);
  await picture(page, "nodes-map");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(await tooWide(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  await picture(page, "nodes-map-dark");
  assert.deepEqual(await violations(page), []);
  await page.emulateMedia({ colorScheme: "light" });
  await ask("stop_one");
  await ask("grow", 51);
  await until("one has left, and two have come", async () => (await squares.count()) === 51);
  await until("who lends a CPU has a stronger colour", async () => (await page.locator(".heat a:not(.heat-0)").count()) > 0);
  await squares.nth(7).click();
  await page.getByRole("heading", { level: 1, name: "Node 8", exact: true }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

let failed = 0;
for (const [name, run] of cases) {
  if (told.cases.length > 0 && !told.cases.some((word) => name.includes(word))) continue;
  const began = Date.now();
  try {
    await run();
    console.log(`ok      ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
    for (const context of browser.contexts()) {
      for (const page of context.pages()) await picture(page, `failed-${failed}`).catch(() => undefined);
      await context.close();
    }
  }
}
await browser.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
