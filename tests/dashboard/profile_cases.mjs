// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the time goes: of the cluster's functions, and of the page itself.
import assert from "node:assert/strict";
import { ask, kNarrow, kWide, open, picture, settled, told, tooWide, until, violations } from "./chromium.mjs";
import { test } from "./suite.mjs";

test("a flame graph is of any part of the hour, and of the job that is chosen", async () => {
  const { job } = await ask("another_job"); // It calls spins_elsewhere alone.
  const page = await open("functions");
  await settled(page);
  const card = page.locator(".card", { has: page.getByRole("heading", { name: "Where the time goes" }) });
  const own = card.locator("table.sums th");
  const names = async () => (await own.allInnerTexts()).join(" ");
  await until("all jobs are in it", async () => /sum_up/.test(await names()) && /prepare/.test(await names()));
  await card.getByLabel("Of which jobs").selectOption(String(job));
  await until("only that job is", async () => /sum_up/.test(await names()) && !/prepare/.test(await names()));
  await card.scrollIntoViewIfNeeded();
  await picture(page, "profile-job");
  assert.match(page.url(), new RegExp(`profile\\.job=${job}`));
  // Before there was a cluster; a link says so, too.
  const until_when = card.getByLabel("Until when");
  await until_when.focus();
  await page.keyboard.press("Home");
  await card.getByText("No samples of that time").waitFor();
  const there = await open(page.url().slice(told.url.length + 1));
  await there.getByText("No samples of that time").waitFor();
  await there.context().close();
  await picture(page, "profile-past");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize(kNarrow);
  assert.deepEqual(await tooWide(page), []);
  await card.scrollIntoViewIfNeeded();
  await picture(page, "profile-past-narrow");
  await page.setViewportSize(kWide);
  await card.getByRole("button", { name: "Now" }).click();
  await until("it is there again", async () => /sum_up/.test(await names()));
  assert.doesNotMatch(page.url(), /profile\.to/);
  await page.emulateMedia({ colorScheme: "dark" });
  await picture(page, "profile-job-dark");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

const kFillMs = 150_000; // The page keeps two minutes of bars, and forgets lanes after them.
const kSamples = 10;
const kMostPerMinute = 0.2e6; // Bytes.

/** Of a line through the points, by least squares. */
function slope(points) {
  const mean = (of) => points.reduce((sum, point) => sum + of(point), 0) / points.length;
  const [x, y] = [mean((point) => point[0]), mean((point) => point[1])];
  return mean(([a, b]) => (a - x) * (b - y)) / mean(([a]) => (a - x) ** 2);
}

test("the heap stays as it is, and one that grew would be noticed", async () => {
  const page = await open("stream");
  await settled(page);
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.enable");
  const heap = async () => {
    await client.send("HeapProfiler.collectGarbage");
    return (await client.send("Runtime.getHeapUsage")).usedSize;
  };
  /** Bytes a minute. */
  const growth = async (minutes) => {
    const points = [];
    const began = Date.now();
    for (let i = 0; i < kSamples; ++i) {
      points.push([(Date.now() - began) / 60_000, await heap()]);
      await page.waitForTimeout((minutes * 60_000) / kSamples);
    }
    return { grew: slope(points), last: points[kSamples - 1][1] };
  };
  await page.waitForTimeout(kFillMs);
  const { grew, last } = await growth(told.minutes);
  assert.ok(grew < kMostPerMinute, `${Math.round(grew)} bytes a minute, over ${told.minutes} minutes`);
  // A leak of four times the bound: so many numbers of eight bytes a second.
  await page.evaluate((numbers) => {
    window.leak = [];
    setInterval(() => window.leak.push(new Array(numbers).fill(Math.random())), 1000);
  }, Math.round((4 * kMostPerMinute) / 60 / 8));
  const planted = await growth(1);
  assert.ok(planted.grew > kMostPerMinute, `${Math.round(planted.grew)} bytes a minute are not noticed`);
  assert.deepEqual(page.wrong, []);
  await ask("heap", { minutes: told.minutes, bytes: last, bytes_per_minute: grew, bound: kMostPerMinute });
  await page.context().close();
});
