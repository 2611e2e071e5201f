// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A listing: filtered, ordered and cut into pages by the server. What it shows is in the address, so
// that a link leads to the same rows; the same rows come as JSON and from the command line.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { getJson, type Rows } from "./api";
import { count } from "./format";
import { Copy, Empty, Problem, useLoaded } from "./parts";
import { go, query, withQuery } from "./router";
import { commandLine } from "./shell";

export interface Column<T> {
  key: string;
  title: string;
  number?: boolean;
  /** Takes what room there is, and is cut where that is too little. */
  wide?: boolean;
  /** The server orders by it. */
  sorts?: boolean;
  cell: (row: T) => ComponentChildren;
}

interface Props<T> {
  kind: string;
  columns: Column<T>[];
  /** Keys that a filter may name. */
  keys: string[];
  rowKey: (row: T) => string;
  /** "KEY=VALUE" that always hold, as those of a part of a page. */
  fixed?: string[];
  order?: string;
  parameters?: Record<string, string>;
  empty: ComponentChildren;
  /** A further option of `sheaf list`. */
  cli?: string;
  /** This listing is not what the page is about: in the address its filters have its name before them. */
  inner?: boolean;
  aside?: ComponentChildren;
  onRows?: (answer: Rows<T>) => void;
}

const kEveryMs = 3000;
const kPage = 50; // Rows that the server gives.

export function Table<T>(props: Props<T>) {
  const whose = props.inner ? `${props.kind}.` : "";
  const filters = query.value.getAll(`${whose}filter`);
  const order = query.value.get(`${whose}order`) ?? props.order ?? "";
  // Other rows begin with their first page.
  const show = (name: string, value: string | string[]) =>
    go(withQuery({ [`${whose}after`]: null, [whose + name]: value }), { stays: props.inner });
  const parameters = new URLSearchParams(props.parameters);
  for (const filter of [...(props.fixed ?? []), ...filters]) parameters.append("filter", filter);
  if (order) parameters.set("order", order);
  const rowsOf = `${props.kind}?${parameters}`;
  const pages = usePages(rowsOf, `${whose}after`, props.inner);
  if (pages.after !== null) parameters.set("after", pages.after);
  const asked = `/api/sheaf/${props.kind}?${parameters}`;
  const { value, error, busy, again } = useLoaded(
    async (stop) => {
      const answer = await getJson<Rows<T>>(asked, stop);
      props.onRows?.(answer);
      return answer;
    },
    [asked],
    kEveryMs,
  );
  const answer = value.value;
  const line = commandLine(props.kind, props.cli ?? "", [...(props.fixed ?? []), ...filters], order, kPage * (pages.place ?? 1));
  return (
    <div class="listing">
      <div class="bar">
        <FilterInput keys={props.keys} kind={props.kind} filters={filters} onChange={(next) => show("filter", next)} />
        {props.aside}
        <span class="spring" />
        <span class={`spin ${busy.value ? "on" : ""}`} aria-hidden="true" />
        <Taking again={again} rows={answer?.rows ?? []} line={line} />
      </div>
      {error.value !== null && <Problem of={error.value} />}
      {answer && <Warnings of={answer} paged={props.kind === "tasks"} />}
      {answer && (answer.rows.length > 0 ? (
        <Grid {...props} rows={answer.rows} order={order} onOrder={(next) => show("order", next)} />
      ) : (
        <Empty>{filters.length > 0 ? "Nothing fits these filters." : props.empty}</Empty>
      ))}
      {!answer && error.value === null && <div class="skeleton" aria-label="Loading" />}
      {answer && <Pager pages={pages} next={answer.next} rows={answer.rows.length} total={answer.total} />}
    </div>
  );
}

/** What may be done with the rows that are shown. `line`: what prints them in a shell. */
export function Taking(props: { again: () => void; rows: unknown[]; line: string }) {
  return (
    <span class="together">
      <button type="button" class="quiet" onClick={props.again} title="Ask again now">
        Refresh
      </button>
      <Copy label="Link" text={() => location.href} title="Copy a link to these rows" />
      <Copy label="JSON" text={() => JSON.stringify(props.rows, null, 2)} title="Copy these rows as JSON" />
      <Copy label="CLI" text={() => props.line} title={props.line} />
    </span>
  );
}

// The page before each that was gone to from there: a cursor knows what comes behind it, not what came before.
const before = new Map<string, string | null>();

export interface Pages {
  /** Behind what the page begins, as the server says; null: it is the first. */
  after: string | null;
  /** From 1; null: nobody knows, as a link led here. */
  place: number | null;
  go: (after: string | null) => void;
  back: () => void;
}

/** Which page of `rows` is shown: the address has it as `name`. */
export function usePages(rows: string, name: string, stays = false): Pages {
  const after = query.value.get(name);
  const key = (cursor: string) => `${rows} ${cursor}`;
  let place: number | null = 1;
  for (let one = after; one !== null && place !== null; ) {
    const earlier = before.get(key(one));
    place = earlier === undefined ? null : place + 1;
    one = earlier ?? null;
  }
  return {
    after,
    place,
    go: (next) => {
      if (next !== null && !before.has(key(next))) before.set(key(next), after);
      go(withQuery({ [name]: next }), { stays });
    },
    back: () => go(withQuery({ [name]: after === null ? null : (before.get(key(after)) ?? null) }), { stays }),
  };
}

/** `next`: the cursor behind what is shown; null: there is no more. `total`: of cursors that count rows. */
export function Pager(props: { pages: Pages; next: string | null; rows: number; total: number | null }) {
  const { pages, next, rows, total } = props;
  if (pages.after === null && next === null) return null;
  const begin = Number(pages.after ?? 0);
  const numbers = `${count(begin + Math.min(1, rows))}–${count(begin + rows)} of ${count(total ?? 0)}`;
  return (
    <div class="pager">
      <button type="button" disabled={pages.after === null} onClick={pages.back}>
        ← {pages.place === null ? "First" : "Back"}
      </button>
      <span class="dim">{total !== null ? numbers : pages.place === null ? "a later page" : `page ${pages.place}`}</span>
      <button type="button" disabled={next === null} onClick={() => pages.go(next)}>
        More →
      </button>
    </div>
  );
}

/** `paged`: nodes give a page of what they have, so that there are more rows says nothing. */
function Warnings<T>(props: { of: Rows<T>; paged: boolean }) {
  const { late_nodes: late, events_lost: lost, truncated } = props.of;
  return (
    <>
      {late.length > 0 && (
        <p class="hint">
          Without the rows of node{late.length > 1 ? "s" : ""} {late.join(", ")}, which did not answer in time.
        </p>
      )}
      {truncated && !props.paged && (
        <p class="hint">The cluster has more rows than were looked through; a filter for an id, a name, an owner or a node looks at all.</p>
      )}
      {lost > 0 && (
        <p class="hint">{count(lost)} more calls ended before their node looked; Functions counts them all.</p>
      )}
    </>
  );
}

function Grid<T>(props: Props<T> & { rows: T[]; order: string; onOrder: (order: string) => void }) {
  const key = props.order.replace(/^-/, "");
  const descends = props.order.startsWith("-");
  const classOf = (column: Column<T>) => [column.number && "num", column.wide && "wide"].filter(Boolean).join(" ");
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Rows of ${props.kind}`}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th
                class={classOf(column)}
                scope="col"
                aria-sort={column.sorts && key === column.key ? (descends ? "descending" : "ascending") : undefined}
              >
                {column.sorts ? (
                  <button
                    type="button"
                    onClick={() => props.onOrder(key === column.key ? (descends ? column.key : `-${column.key}`) : `${column.number ? "-" : ""}${column.key}`)}
                  >
                    {column.title}
                    {key === column.key && <span class="arrow" aria-hidden="true">{descends ? "↓" : "↑"}</span>}
                  </button>
                ) : (
                  column.title
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.rowKey(row)}>
              {props.columns.map((column) => (
                <td class={classOf(column)}>{column.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function FilterInput(props: { keys: string[]; kind: string; filters: string[]; onChange: (next: string[]) => void }) {
  const text = useSignal("");
  const wrong = useSignal("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const at = event.target as HTMLElement;
      if (event.key !== "/" || at.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const add = (event: Event) => {
    event.preventDefault();
    const filter = text.value.trim();
    if (!filter) return;
    const key = /^([a-z_]+)(?:=|!=|~)/.exec(filter)?.[1];
    if (key === undefined || !props.keys.includes(key)) {
      wrong.value = `Want KEY=VALUE, KEY!=VALUE or KEY~VALUE, with one of the keys ${props.keys.join(", ")}.`;
      return;
    }
    wrong.value = "";
    text.value = "";
    props.onChange([...props.filters.filter((one) => one !== filter), filter]);
  };
  const list = `keys-of-${props.kind}`;
  return (
    <form class="filters" onSubmit={add}>
      <input
        ref={input}
        type="text"
        list={list}
        aria-label={`Filter ${props.kind}`}
        placeholder={`Filter: ${props.keys[0]}=…`}
        title={`Keys: ${props.keys.join(", ")}`}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        spellcheck={false}
        autocomplete="off"
      />
      <datalist id={list}>
        {props.keys.map((key) => (
          <option value={`${key}=`} />
        ))}
      </datalist>
      {props.filters.map((filter) => (
        <span class="chip">
          {filter}
          <button
            type="button"
            aria-label={`Without the filter ${filter}`}
            onClick={() => props.onChange(props.filters.filter((one) => one !== filter))}
          >
            ✕
          </button>
        </span>
      ))}
      {wrong.value && (
        <p class="problem" role="alert">
          {wrong.value}
        </p>
      )}
    </form>
  );
}
