// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Builds the page: node build.mjs OUT. The same sources and packages give the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";

const out = process.argv[2];
if (!out) throw new Error("build.mjs OUT: where the page shall lie");
await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
});
await build({ entryPoints: { app: "src/style.css" }, outdir: out, bundle: true, minify: true });
for (const name of ["index.html", "icon.svg"]) await copyFile(join("src", name), join(out, name));
