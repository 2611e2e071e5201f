// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A listing: filtered, ordered and cut into pages by the server. What it shows is in the address, so
// that a link leads to the same rows; the same rows come as JSON and from the command line.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { getJson, type Rows } from "./api";
import { count } from "./format";
import { Copy, Empty, Problem, quoted, useLoaded } from "./parts";
import { go, query, withQuery } from "./router";

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
  /** Words of `sheaf list`, behind the kind. */
  cli?: string;
  /** Of the rows that the command line prints: behind its filters, as here. */
  cliLimit?: number;
  /** This listing is not what the page is about: its filters stay out of the address. */
  inner?: boolean;
  aside?: ComponentChildren;
  onRows?: (answer: Rows<T>) => void;
}

const kEveryMs = 3000;

export function Table<T>(props: Props<T>) {
  const own = useSignal<{ filters: string[]; order: string | null }>({ filters: [], order: null });
  const pages = useSignal<{ of: string; after: string[] }>({ of: "", after: [] });
  const inAddress = !props.inner;
  const filters = inAddress ? query.value.getAll("filter") : own.value.filters;
  const order = (inAddress ? query.value.get("order") : own.value.order) ?? props.order ?? "";
  const setFilters = (next: string[]) => {
    own.value = { ...own.value, filters: next };
    if (inAddress) go(withQuery({ filter: next }));
  };
  const setOrder = (next: string) => {
    own.value = { ...own.value, order: next };
    if (inAddress) go(withQuery({ order: next }));
  };
  const parameters = new URLSearchParams(props.parameters);
  for (const filter of [...(props.fixed ?? []), ...filters]) parameters.append("filter", filter);
  if (order) parameters.set("order", order);
  const first = String(parameters);
  const after = pages.value.of === first ? pages.value.after : []; // Other rows begin with their first page.
  const last = after[after.length - 1];
  if (last !== undefined) parameters.set("after", last);
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
  const line = commandLine(props.kind, props.cli ?? "", [...(props.fixed ?? []), ...filters], order, props.cliLimit);
  return (
    <div class="listing">
      <div class="bar">
        <FilterInput keys={props.keys} kind={props.kind} filters={filters} onChange={setFilters} />
        {props.aside}
        <span class="spring" />
        <span class={`spin ${busy.value ? "on" : ""}`} aria-hidden="true" />
        <span class="together">
          <button type="button" class="quiet" onClick={again} title="Ask again now">
            Refresh
          </button>
          <Copy label="Link" text={() => location.href} title="Copy a link to these rows" />
          <Copy label="JSON" text={() => JSON.stringify(answer?.rows ?? [], null, 2)} title="Copy these rows as JSON" />
          <Copy label="CLI" text={() => line} title={line} />
        </span>
      </div>
      {error.value !== null && <Problem of={error.value} />}
      {answer && <Warnings of={answer} paged={props.kind === "tasks"} />}
      {answer && (answer.rows.length > 0 ? (
        <Grid {...props} rows={answer.rows} order={order} onOrder={setOrder} />
      ) : (
        <Empty>{filters.length > 0 ? "Nothing fits these filters." : props.empty}</Empty>
      ))}
      {!answer && error.value === null && <div class="skeleton" aria-label="Loading" />}
      {answer && (after.length > 0 || answer.next !== null) && (
        <div class="pager">
          <button type="button" disabled={after.length === 0} onClick={() => (pages.value = { of: first, after: after.slice(0, -1) })}>
            ← Back
          </button>
          <span class="dim">{place(answer, after)}</span>
          <button
            type="button"
            disabled={answer.next === null}
            onClick={() => (pages.value = { of: first, after: [...after, answer.next!] })}
          >
            More →
          </button>
        </div>
      )}
    </div>
  );
}

function place<T>(answer: Rows<T>, after: string[]): string {
  if (answer.total === null) return `page ${after.length + 1}`;
  const begin = Number(after[after.length - 1] ?? 0);
  return `${count(begin + 1)}–${count(begin + answer.rows.length)} of ${count(answer.total)}`;
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

/** What prints the same in a shell. */
function commandLine(kind: string, words: string, filters: string[], order: string, limit?: number): string {
  const line = `sheaf list ${kind.replaceAll("_", "-")}${words ? ` ${words}` : ""}`;
  if (filters.length === 0 && !order) return limit === undefined ? line : `${line} --limit ${limit}`;
  let pick = `.${kind}`;
  const tests = filters.flatMap((filter) => {
    // The server says what is wrong with others.
    const [, key, test, value] = /^([a-z_]+)(=|!=|~)(.*)$/s.exec(filter) ?? [];
    if (key === undefined) return [];
    const text = JSON.stringify(value!.toLowerCase());
    const field = `(.${key} | tostring | ascii_downcase)`;
    return test === "~" ? `(${field} | contains(${text}))` : `${field} ${test === "=" ? "==" : "!="} ${text}`;
  });
  if (tests.length > 0) pick += ` | map(select(${tests.join(" and ")}))`;
  if (order) pick += ` | sort_by(.${order.replace(/^-/, "")})${order.startsWith("-") ? " | reverse" : ""}`;
  if (limit !== undefined) pick += ` | .[:${limit}]`;
  return `${line} --json | jq ${quoted(pick)}`;
}
