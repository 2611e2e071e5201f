// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When a browser that has never been there shows the page: paint.mjs NODE_MODULES URL TIMES prints
// [{paint_ms, figures_ms}], from the beginning of the navigation.
import { createRequire } from "node:module";

const [packages, url, times] = process.argv.slice(2);
const { chromium } = createRequire(`${packages}/`)("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const found = [];
// One more: the first starts the dashboard, and parts of the browser.
for (let i = 0; i <= Number(times); ++i) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(url);
  await page.locator(".tile .figure").first().filter({ hasText: /\d/ }).waitFor();
  const figures_ms = await page.evaluate(() => performance.now());
  const paint_ms = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  if (i > 0) found.push({ paint_ms, figures_ms });
  await context.close();
}
await browser.close();
console.log(JSON.stringify(found));
