// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The browser, and what one does in it. Started by browser.py, which tells where all is and does what
// a browser cannot. Every wait ends after a minute.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export const told = JSON.parse(process.argv[2]);
const require = createRequire(`${told.packages}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(told.pictures, { recursive: true });

const kWaitMs = 60_000;
export const kWide = { width: 1280, height: 720 };
export const kNarrow = { width: 390, height: 844 };

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export async function ask(...words) {
  console.log(`?${JSON.stringify(words)}`);
  const answer = JSON.parse((await answers.next()).value);
  if (answer?.raised !== undefined) throw new Error(answer.raised);
  return answer;
}

export async function until(what, holds) {
  const end = Date.now() + kWaitMs;
  for (let last; ; ) {
    try {
      const value = await holds();
      if (value) return value;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`within a minute: ${what}${last ? ` (${last.message})` : ""}`);
    await new Promise((then) => setTimeout(then, 100));
  }
}

export const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });

/** A page that notes what it may not do: complain, or ask others. */
export async function open(path, { size = kWide, scheme = "light", at = told.url } = {}) {
  const context = await browser.newContext({ viewport: size, colorScheme: scheme });
  const page = await context.newPage();
  page.setDefaultTimeout(kWaitMs);
  page.wrong = [];
  page.on("console", (message) => message.type() === "error" && page.wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => page.wrong.push(`exception: ${error.stack}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(at) && !url.startsWith("data:") && !url.startsWith("blob:")) page.wrong.push(`asks ${url}`);
  });
  await page.goto(`${at}/${path}`);
  return page;
}

export async function settled(page) {
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.getByRole("status").getByText("live", { exact: true }).or(page.locator(".menu .state.good")).first().waitFor();
  await until("nothing loads any more", async () => (await page.locator(".skeleton").count()) === 0);
}

export async function picture(page, name) {
  await page.screenshot({ path: `${told.pictures}/${name}.png` });
}

export async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html.slice(0, 120)} ${node.any[0]?.message ?? ""}`).join("; ")}`);
}

/** What sticks out of the page, which must not scroll sideways. */
export function tooWide(page) {
  return page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return [];
    const out = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > room && !one.closest(".scroll"));
    return out.map((one) => `${one.tagName} ${one.className} ${Math.round(one.getBoundingClientRect().right)} ${one.textContent.slice(0, 60)}`);
  });
}
