// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How smoothly the task stream scrolls: frames.mjs NODE_MODULES URL SECONDS prints {frames_per_s,
// script_ms, longest_ms}: the page's own work a frame, and the longest time between two.
import { createRequire } from "node:module";

const [packages, url, seconds] = process.argv.slice(2);
const { chromium } = createRequire(`${packages}/`)("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
page.setDefaultTimeout(60_000);
await page.goto(`${url}/stream`);
await page.waitForFunction(() => document.querySelector("canvas") !== null);
await page.waitForTimeout(5000); // The stream fills.
const client = await page.context().newCDPSession(page);
await client.send("Performance.enable");
const work = async () => (await client.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;
const before = await work();
const { frames, longest_ms, ms } = await page.evaluate(
  (ms) =>
    new Promise((then) => {
      const begin = performance.now();
      let frames = 0;
      let longest_ms = 0;
      let last = begin;
      const frame = (now) => {
        longest_ms = Math.max(longest_ms, now - last);
        last = now;
        frames += 1;
        if (now - begin < ms) requestAnimationFrame(frame);
        else then({ frames, longest_ms, ms: now - begin });
      };
      requestAnimationFrame(frame);
    }),
  Number(seconds) * 1000,
);
console.log(JSON.stringify({ frames_per_s: (frames * 1000) / ms, script_ms: ((await work()) - before) * 1000 / frames, longest_ms }));
await browser.close();
