// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The tour of docs/operate.md, as somebody follows it: tour.py says what it tells to do.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { ask, browser, open, picture, settled, told } from "./chromium.mjs";

let page = null;

/** Whole words: "Node 3" is not "Node 31". */
function named(role, name) {
  return page.getByRole(role, { name, exact: true });
}

const does = {
  async sh(lines) {
    const { url } = await ask("sh", lines);
    if (page === null) page = await open("", { at: url });
  },
  click: (name) => named("link", name).or(named("button", name)).first().click(),
  see: (text) => page.getByText(text).first().waitFor(),
  async picture(name) {
    await page.emulateMedia({ colorScheme: name.endsWith("-dark") ? "dark" : "light" });
    await settled(page);
    await page.waitForTimeout(5000); // There is more to see then.
    const client = await page.context().newCDPSession(page);
    const { data } = await client.send("Page.captureScreenshot", { format: "webp", quality: 75 });
    writeFileSync(`${told.record}/${name}.webp`, Buffer.from(data, "base64"));
    await client.detach();
  },
};

for (const [at, [what, words]] of told.steps.entries()) {
  const began = Date.now();
  try {
    await does[what](words);
    // Behind the last step the cluster is gone, and a page may say so.
    if (at + 1 < told.steps.length) assert.deepEqual(page.wrong, []);
  } catch (error) {
    if (page !== null) await picture(page, "failed-tour").catch(() => undefined);
    console.log(`FAILED  ${what} ${words}\n${error.stack}`);
    process.exit(1);
  }
  console.log(`ok      ${what} ${words.split("\n")[0]} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
}
await browser.close();
process.exit(0); // Nothing more is read from our input.
