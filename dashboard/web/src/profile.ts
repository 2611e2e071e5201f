// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the time of calls went, as a tree: what a function took with all that it called.

export interface ProfileRow {
  function: string;
  file: string;
  line: number | null;
  job: number | null;
  parent: number | null; // A place in the list, before this one.
  self_us: number;
}

export interface Frame {
  name: string;
  file: string;
  line: number | null;
  self: number;
  total: number;
  depth: number;
  parent: Frame | null;
  children: Frame[];
}

function frame(row: Pick<ProfileRow, "function" | "file" | "line">, parent: Frame | null): Frame {
  const made: Frame = {
    name: row.function,
    file: row.file,
    line: row.line,
    self: 0,
    total: 0,
    depth: parent === null ? 0 : parent.depth + 1,
    parent,
    children: [],
  };
  parent?.children.push(made);
  return made;
}

function root(): Frame {
  return frame({ function: "all", file: "", line: null }, null);
}

function finish(top: Frame): Frame {
  const order: Frame[] = [top];
  for (let i = 0; i < order.length; ++i) order.push(...order[i]!.children);
  for (const one of order.reverse()) {
    one.total = one.self + one.children.reduce((sum, child) => sum + child.total, 0);
    one.children.sort((a, b) => b.total - a.total);
  }
  return top;
}

/** Callers above, callees below. */
export function treeOf(rows: ProfileRow[]): Frame {
  const top = root();
  const made: Frame[] = [];
  for (const row of rows) {
    const parent = row.parent === null ? top : (made[row.parent] ?? top);
    const one = frame(row, parent);
    one.self = row.self_us;
    made.push(one);
  }
  return finish(top);
}

/** What took time itself above, who called it below. */
export function callersOf(tree: Frame): Frame {
  const top = root();
  const keyed = new Map<Frame, Map<string, Frame>>();
  visit(tree, (leaf) => {
    if (leaf.self === 0 || leaf.parent === null) return;
    let at = top;
    for (let one: Frame | null = leaf; one !== null && one.parent !== null; one = one.parent) {
      const children = keyed.get(at) ?? new Map<string, Frame>();
      keyed.set(at, children);
      const key = `${one.name}\n${one.file}`;
      const known = children.get(key) ?? frame({ function: one.name, file: one.file, line: one.line }, at);
      children.set(key, known);
      at = known;
    }
    at.self += leaf.self;
  });
  return finish(top);
}

export function visit(top: Frame, take: (one: Frame) => void): void {
  const left = [top];
  for (let one = left.pop(); one !== undefined; one = left.pop()) {
    take(one);
    left.push(...one.children);
  }
}

/** By their own time, the most first; what a function calls of itself counts once. */
export function hottest(top: Frame, most: number): { name: string; file: string; self: number }[] {
  const sums = new Map<string, { name: string; file: string; self: number }>();
  visit(top, (one) => {
    if (one.self === 0) return;
    const key = `${one.name}\n${one.file}`;
    const sum = sums.get(key) ?? { name: one.name, file: one.file, self: 0 };
    sum.self += one.self;
    sums.set(key, sum);
  });
  return [...sums.values()].sort((a, b) => b.self - a.self).slice(0, most);
}
