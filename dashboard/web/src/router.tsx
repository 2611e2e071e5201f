// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which page the address names. The address holds all that a link to the same view needs.
import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

const here = signal(location.pathname + location.search);
addEventListener("popstate", () => {
  here.value = location.pathname + location.search;
});

/** The parts of the path: ["nodes", "2"]. */
export const path = computed(() =>
  new URL(here.value, location.origin).pathname
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part; // A stray percent sign: it names nothing that there is.
      }
    }),
);
/** All of it: another one is another view. */
export const address = computed(() => here.value);
export const query = computed(() => new URL(here.value, location.origin).searchParams);

/** `stays`: what the reader looks at is still there, so the page does not scroll. */
export function go(to: string, how: { replaces?: boolean; stays?: boolean } = {}): void {
  if (to === location.pathname + location.search) return;
  history[how.replaces ? "replaceState" : "pushState"](null, "", to);
  here.value = to;
  if (!how.replaces && !how.stays) scrollTo(0, 0);
}

/** The same page with other parameters; null takes one away, a list repeats one. */
export function withQuery(changes: Record<string, string | string[] | null>): string {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of value === null ? [] : [value].flat()) next.append(name, one);
  }
  const text = next.toString();
  return location.pathname + (text ? `?${text}` : "");
}

export function Link(props: {
  to: string;
  children: ComponentChildren;
  class?: string;
  title?: string;
  current?: boolean;
}) {
  const take = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(props.to);
  };
  return (
    <a
      href={props.to}
      onClick={take}
      class={props.class}
      title={props.title}
      aria-current={props.current ? "page" : undefined}
    >
      {props.children}
    </a>
  );
}

export const linkTo = {
  task: (id: string) => `/tasks/${encodeURIComponent(id)}`,
  actor: (id: string) => `/actors/${encodeURIComponent(id)}`,
  node: (node: number) => `/nodes/${node}`,
  fn: (name: string) => `/functions/${encodeURIComponent(name)}`,
  job: (id: string) => `/jobs/${encodeURIComponent(id)}`,
  train: (id: string) => `/train/${encodeURIComponent(id)}`,
  /** What a worker has printed. */
  output: (process: string) => `/logs?node=${nodeOf(process)}&file=${encodeURIComponent(`worker-${process}.out`)}`,
};

/** "3.17" -> node 3. */
export function nodeOf(process: string): number {
  return Number(process.split(".")[0]);
}
