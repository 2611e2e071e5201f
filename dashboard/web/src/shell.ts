// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is copied into a shell.

/** As one word of a shell, whatever is in it. */
export function quoted(word: string): string {
  return `'${word.replace(/[\x00-\x1f\x7f]/g, "?").replaceAll("'", `'\\''`)}'`;
}

/** Quoted where a shell would take it for more than a word. */
export function word(text: string): string {
  return /^[\w./:=@%+-]+$/.test(text) ? text : quoted(text);
}

/** What prints the same in a shell: with the rows of the pages before, as `limit` says. */
export function commandLine(kind: string, option: string, filters: string[], order: string, limit: number): string {
  const words = ["sheaf list", kind.replaceAll("_", "-"), option];
  for (const filter of filters) words.push(`--filter ${word(filter)}`);
  if (order) words.push(`--order=${word(order)}`);
  return [...words, `--limit ${limit}`].filter(Boolean).join(" ");
}
