// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Numbers and tables: they say what the command line says, and a link leads to the same rows.
import assert from "node:assert/strict";
import { ask, kNarrow, kWide, open, picture, settled, told, tooWide, until, violations } from "./chromium.mjs";
import { test } from "./suite.mjs";

/** While nothing but the training goes on. */
async function resting(run) {
  await ask("rest");
  try {
    await run();
  } finally {
    await ask("go_on");
  }
}

async function list(...words) {
  return (await ask("list", ...words))[words[0].replaceAll("-", "_")];
}

const sum = (rows, of) => rows.reduce((all, row) => all + of(row), 0);
const number = (text) => Number(text.replaceAll(",", ""));
/** Whether a figure of three digits and a letter, or of all digits, is of `value`. */
function shows(figure, value) {
  const [, digits, letter] = /^([\d.,]+)([kMGT]?)/.exec(figure);
  const unit = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[letter];
  return Math.abs(number(digits) * unit - value) <= (letter ? 0.005 * value : 0);
}

/** The button of the first table, or of `inside`, and what it has put on the clipboard. */
async function copied(page, name, inside = page.locator(".listing").first()) {
  await inside.getByRole("button", { name, exact: true }).click();
  return page.evaluate(() => navigator.clipboard.readText());
}

async function openTable(path) {
  const page = await open(path);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await settled(page);
  return page;
}

test("numbers of functions and rows are those of the command line", () =>
  resting(async () => {
    const page = await open("functions");
    await settled(page);
    for (const one of (await list("functions")).filter((row) => row.name === "prepare" || row.name === "breaks")) {
      await page.goto(`${told.url}/functions/${one.name}`);
      const shown = async (title) => {
        const fact = page.locator(".facts div", { has: page.locator("dt", { hasText: new RegExp(`^${title}$`) }) });
        return number(await fact.locator("dd").innerText());
      };
      await until(`${one.name} has the figures of sheaf list`, async () =>
        (await shown("Finished")) === one.finished && (await shown("Failed")) === one.failed && (await shown("Running")) === one.running);
    }
    for (const kind of ["actors", "nodes"]) {
      const rows = await list(kind);
      await page.goto(`${told.url}/${kind}`);
      await until(`as many ${kind} as sheaf list has`, async () => (await page.locator("tbody tr").count()) === rows.length);
    }
    assert.deepEqual(page.wrong, []);
    await page.context().close();
  }));

test("numbers of the state bar are those of the command line", () =>
  resting(async () => {
    const page = await open("tasks");
    await settled(page);
    const shown = async (words) => number(/^[\d,]+/.exec(await page.locator(`.states a[title$=" ${words}"]`).getAttribute("title"))[0]);
    // Trainers work on: what has ended grows, so it is between what it was before and after.
    for (const [key, words] of [["finished", "finished"], ["failed", "failed"], ["cancelled", "cancelled"]]) {
      const before = sum(await list("functions"), (row) => row[key]);
      await until(`${words} is ${before} or more`, async () => (await shown(words)) >= before);
      const seen = await shown(words);
      const after = sum(await list("functions"), (row) => row[key]);
      assert.ok(seen <= after, `${seen} ${words}, and then ${after}`);
    }
    for (const [key, words] of [["waiting_for_arguments", "wait for arguments"], ["waiting_for_place", "wait for a place"], ["running", "run"]]) {
      await until(`as many ${words}`, async () => (await shown(words)) === sum(await list("functions"), (row) => row[key]));
    }
    assert.ok((await shown("wait for a place")) >= 4, "those that ask for GPUs");
    assert.deepEqual(page.wrong, []);
    await page.context().close();
  }));

test("numbers of the overview are those of the command line", () =>
  resting(async () => {
    const page = await open("");
    await settled(page);
    const tile = (title) => page.locator(".tile", { has: page.getByRole("heading", { name: title, exact: true }) });
    const words = (title) => tile(title).locator(".figure").innerText();
    const figure = async (title) => number(/^[\d.,]+/.exec(await words(title))[0]);
    const status = (node = 0) => ask("status", node);
    await until("as many calls have failed", async () => shows(await words("Failed"), sum(await list("functions"), (row) => row.failed)));
    await until("as many CPUs are lent", async () => {
      const cpu = (await status()).resources.find((row) => row.resource === "CPU");
      const total = number(/of ([\d.,]+)/.exec(await tile("CPU").locator(".figure").innerText())[1]);
      return Math.abs((await figure("CPU")) - cpu.used) < 0.01 && total === cpu.total;
    });
    await until("as many workers are at work", async () => {
      const workers = await list("workers");
      const all = number(/of ([\d,]+)/.exec(await tile("Workers").locator(".figure").innerText())[1]);
      return all === workers.length && (await figure("Workers")) === workers.filter((row) => row.state !== "IDLE").length;
    });
    await until("as much is in the stores", async () => {
      const stores = [];
      for (let node = 0; node < told.nodes; ++node) stores.push((await status(node)).store);
      const mib = (key) => `${(sum(stores, (store) => store[key]) / 2 ** 20).toFixed(1)} MiB`;
      const text = await tile("Object store").innerText();
      return text.includes(mib("used_bytes")) && text.includes(`of ${mib("capacity_bytes")}`);
    });
    const waiting = page.locator(".card", { hasText: "What waits, and why" });
    const { demand } = await status();
    assert.ok(sum(demand, (row) => row.count) >= 4);
    for (const row of demand) {
      await waiting.locator("li", { has: page.locator("b", { hasText: `${row.count}×` }) }).filter({ hasText: row.words }).first().waitFor();
    }
    await until("as many calls wait", async () => shows(await words("Waiting"), sum((await status()).demand, (row) => row.count)));
    assert.deepEqual(page.wrong, []);
    await page.context().close();
  }));

const idOf = (row) => [row.task_id ?? row.actor_id ?? row.object_id ?? row.process, row.attempt, row.state, row.where].join("/");

test("the line of a table's CLI button prints the rows of the table", () =>
  resting(async () => {
    // A table, a part of a page's table, and a later page.
    for (const [path, fits, later] of [
      ["tasks?ended=only&filter=name%3Dprepare", (row) => row.name === "prepare" && row.state === "FINISHED", false],
      ["tasks?filter=state%3DFAILED&filter=name!%3Dprepare", (row) => row.state === "FAILED", true],
      ["tasks?ended=false&filter=name%3Dneeds_gpus", (row) => row.name === "needs_gpus", false],
      ["objects?filter=size_bytes%3D1.0%20MiB&order=object_id", (row) => row.size_bytes >= 1 << 20, false],
      ["actors?filter=state%3DALIVE&filter=class_name~counter&order=-name", (row) => row.state === "ALIVE", false],
      ["functions/breaks", (row) => row.name === "breaks" && row.state === "FAILED", false],
      ["nodes/1", (row) => row.process.startsWith("1."), false],
    ]) {
      const page = await openTable(path);
      if (later) {
        await page.getByRole("button", { name: "More →" }).click();
        await page.getByText("page 2", { exact: true }).waitFor();
        await settled(page);
      }
      await until(`the rows of ${path}`, async () => {
        const rows = JSON.parse(await copied(page, "JSON"));
        const line = await copied(page, "CLI");
        const printed = Object.values(await ask("shell", `${line} --json`))[0];
        assert.ok(rows.length > 0 && rows.every(fits), `${rows.length} rows, the first ${JSON.stringify(rows[0])}`);
        // Of a later page those of the pages before come, too.
        assert.deepEqual(printed.slice(-rows.length).map(idOf), rows.map(idOf), line);
        assert.ok(later || printed.length === rows.length, `${line}: ${printed.length} rows`);
        return true;
      });
      assert.deepEqual(page.wrong, []);
      await page.context().close();
    }
  }));

test("a link leads to the same rows: the page of a table, and the filter of a part", () =>
  resting(async () => {
    const page = await openTable("tasks?filter=name%3Dblink");
    await page.getByRole("button", { name: "More →" }).click();
    await page.getByText("page 2", { exact: true }).waitFor();
    await settled(page);
    const rows = JSON.parse(await copied(page, "JSON"));
    const there = await openTable((await copied(page, "Link")).slice(told.url.length + 1));
    await until("they are the same", async () => {
      assert.deepEqual(JSON.parse(await copied(there, "JSON")).map(idOf), rows.map(idOf));
      return true;
    });
    await there.getByRole("button", { name: "← First" }).click();
    assert.doesNotMatch(there.url(), /after/);
    await there.context().close();
    await page.getByRole("button", { name: "← Back" }).click();
    await page.getByText("page 1", { exact: true }).waitFor();
    await page.getByRole("button", { name: "More →" }).click();
    await page.getByRole("button", { name: "Ended", exact: true }).click();
    assert.doesNotMatch(page.url(), /after/); // Other rows begin with their first page.
    await page.goto(`${told.url}/functions/breaks`);
    await settled(page);
    await page.getByLabel("Filter tasks").fill("error_type=KeyError");
    await page.keyboard.press("Enter");
    await page.getByText("Nothing fits these filters.").waitFor();
    const part = await openTable((await copied(page, "Link")).slice(told.url.length + 1));
    await part.getByText("Nothing fits these filters.").waitFor();
    await part.getByRole("button", { name: "Without the filter error_type=KeyError" }).click();
    await until("its rows are back", async () => (await part.locator(".listing tbody tr").count()) > 0);
    assert.deepEqual([...page.wrong, ...part.wrong], []);
    await page.context().close();
    await part.context().close();
  }));

test("submitted jobs come page by page, and a link leads to theirs", async () => {
  const ids = ["page-a", "page-b", "page-c"].map((name) => `${name}-${Date.now()}`);
  for (const id of ids) await ask("submit", id, "true");
  const page = await openTable(`jobs?submissions.after=${ids[1]}`);
  const submitted = page.locator(".card", { has: page.getByRole("heading", { name: "Submitted" }) });
  await submitted.getByRole("link", { name: ids[0] }).waitFor();
  assert.equal(await submitted.getByRole("link", { name: ids[2] }).count(), 0);
  const rows = JSON.parse(await copied(page, "JSON", submitted));
  assert.equal(rows[0].submission_id, ids[0]);
  assert.equal(await copied(page, "Link", submitted), page.url());
  assert.equal(await copied(page, "CLI", submitted), "sheaf job list");
  await picture(page, "jobs-later");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize(kNarrow);
  assert.deepEqual(await tooWide(page), []);
  await picture(page, "jobs-later-narrow");
  await page.setViewportSize(kWide);
  await submitted.getByRole("button", { name: "← First" }).click();
  await submitted.getByRole("link", { name: ids[2] }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});
