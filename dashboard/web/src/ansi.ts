// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Output of programs for terminals: colours are kept, all else that steers a terminal is dropped.

export interface Piece {
  text: string;
  classes: string;
}

const kSequence = /\x1b\[([0-9;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;

interface Style {
  color: number | null;
  bold: boolean;
  dim: boolean;
}

function apply(style: Style, codes: number[]): void {
  for (let i = 0; i < codes.length; ++i) {
    const code = codes[i]!;
    if (code === 0) Object.assign(style, { color: null, bold: false, dim: false });
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code >= 30 && code <= 37) style.color = code - 30;
    else if (code >= 90 && code <= 97) style.color = code - 90;
    else if (code === 39) style.color = null;
    else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : 4;
  }
}

/** One line, in pieces of one look each. */
export function pieces(line: string): Piece[] {
  const out: Piece[] = [];
  const style: Style = { color: null, bold: false, dim: false };
  const add = (text: string) => {
    if (!text) return;
    const classes = [
      style.color !== null && `ansi-${style.color}`,
      style.bold && "ansi-bold",
      style.dim && "ansi-dim",
    ];
    out.push({ text, classes: classes.filter(Boolean).join(" ") });
  };
  let at = 0;
  for (const match of line.matchAll(kSequence)) {
    add(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") apply(style, (match[1] || "0").split(/[;:]/).map(Number));
  }
  add(line.slice(at));
  return out;
}
