// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What pages are made of.
import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { post, Refusal } from "./api";
import { now } from "./clock";
import { colorOf } from "./colors";
import { clock, moment, span, words } from "./format";

export function Page(props: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Sheaf`;
  }, [props.title]);
  return (
    <>
      <header class="page-head">
        <h1>{props.title}</h1>
        {props.aside && <div class="aside">{props.aside}</div>}
      </header>
      {props.children}
    </>
  );
}

export function Card(props: {
  title?: ComponentChildren;
  note?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <section class={`card ${props.class ?? ""}`}>
      {props.title && (
        <div class="card-head">
          <h2>{props.title}</h2>
          {props.note && <span class="note">{props.note}</span>}
        </div>
      )}
      {props.children}
    </section>
  );
}

const kTones: Record<string, string> = {
  ALIVE: "good", RUNNING: "good", FINISHED: "good", SUCCEEDED: "good", CREATED: "good", ACTOR: "good", LEASED: "good",
  FAILED: "bad", DEAD: "bad", ERROR: "bad", error: "bad", ERRORED: "bad", ABORTED: "bad",
  WARNING: "warn", DRAINING: "warn", RESTARTING: "warn", PENDING: "warn", STARTING: "warn", INFEASIBLE: "warn",
  WAITING_FOR_ARGUMENTS: "warn", WAITING_FOR_LEASE: "warn", WAITING_FOR_ACTOR: "warn", BLOCKED: "warn", spilled: "warn",
  pending: "warn", RESCHEDULING: "warn",
};

/** A state, with a dot in its colour: never the colour alone. */
export function State(props: { of: string }) {
  return <span class={`state ${kTones[props.of] ?? "plain"}`}>{words(props.of)}</span>;
}

export function Name(props: { of: string }) {
  return (
    <span class="name" title={props.of}>
      <i class="swatch" style={{ background: colorOf(props.of) }} />
      <span>{props.of || "(no name)"}</span>
    </span>
  );
}

/** Parts of a whole, side by side. */
export function Meter(props: { label: string; parts: { share: number; tone: string; title?: string }[] }) {
  return (
    <div class="meter" role="img" aria-label={props.label} title={props.label}>
      {props.parts.map((part) => (
        <i class={part.tone} style={{ width: `${Math.max(0, Math.min(1, part.share)) * 100}%` }} title={part.title} />
      ))}
    </div>
  );
}

export function Ago(props: { ms: number | null }) {
  if (!props.ms) return <span class="dim">–</span>;
  const seconds = Math.max(0, now() - props.ms) / 1000;
  return (
    <time dateTime={new Date(props.ms).toISOString()} title={moment(props.ms)}>
      {seconds < 6 * 3600 ? `${span(seconds)} ago`.replace("now ago", "now") : moment(props.ms)}
    </time>
  );
}

export function At(props: { ms: number }) {
  return (
    <time dateTime={new Date(props.ms).toISOString()} title={moment(props.ms)} class="dim">
      {clock(props.ms)}
    </time>
  );
}

export function Empty(props: { children: ComponentChildren }) {
  return <p class="empty">{props.children}</p>;
}

export function Problem(props: { of: unknown }) {
  const text = props.of instanceof Refusal || props.of instanceof Error ? props.of.message : String(props.of);
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

async function toClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers give no clipboard to what comes over plain HTTP from another machine.
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Puts `text` on the clipboard and says so. */
export function Copy(props: { label: string; text: () => string; title?: string }) {
  const done = useSignal(false);
  const copy = async () => {
    await toClipboard(props.text());
    done.value = true;
    setTimeout(() => (done.value = false), 1500);
  };
  return (
    <button type="button" class="quiet" title={props.title} onClick={() => void copy()}>
      {done.value ? "Copied" : props.label}
    </button>
  );
}

export function Command(props: { line: string }) {
  return (
    <div class="command">
      <code title="The same in a shell">{props.line}</code>
      <Copy label="Copy" text={() => props.line} title="Copy the command" />
    </div>
  );
}

export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Dialog(props: { title: string; open: Signal<boolean>; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const open = props.open.value;
  useEffect(() => {
    if (open) element.current?.showModal();
    else element.current?.close();
  }, [open]);
  return (
    <dialog ref={element} aria-label={props.title} onClose={() => (props.open.value = false)}>
      <div class="card-head">
        <h2>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => (props.open.value = false)}>
          ✕
        </button>
      </div>
      {open && props.children}
    </dialog>
  );
}

/** A button that changes the cluster: it asks once more, and POSTs to `path`. `line`: the same in a shell. */
export function Order(props: {
  button: string;
  title: string;
  leave: string;
  confirm: string;
  path: string;
  line?: string;
  then: () => void;
  children: ComponentChildren;
}) {
  const open = useSignal(false);
  const wrong = useSignal<unknown>(null);
  const busy = useSignal(false);
  const consider = () => {
    wrong.value = null; // It was of the time before.
    open.value = true;
  };
  const give = async () => {
    busy.value = true;
    try {
      await post(props.path);
      open.value = false;
      props.then();
    } catch (error) {
      wrong.value = error;
    }
    busy.value = false;
  };
  return (
    <>
      <button type="button" class="danger" onClick={consider}>
        {props.button}
      </button>
      <Dialog title={props.title} open={open}>
        {props.children}
        {wrong.value !== null && <Problem of={wrong.value} />}
        {props.line && <Command line={props.line} />}
        <div class="actions">
          <button type="button" onClick={() => (open.value = false)}>{props.leave}</button>
          <button type="button" class="danger" disabled={busy.value} onClick={() => void give()}>{props.confirm}</button>
        </div>
      </Dialog>
    </>
  );
}

/** Names and values of one thing; what has no value is left out. */
export function Facts(props: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {props.of
        .filter(([, value]) => value !== "" && value !== null && value !== undefined)
        .map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/**
 * What `load` gives, loaded anew when `keys` change and, with `everyMs`, again and again while the
 * page is seen. The old value stays until the new one is there.
 */
export function useLoaded<T>(load: (stop: AbortSignal) => Promise<T>, keys: unknown[], everyMs = 0) {
  const value = useSignal<T | null>(null);
  const error = useSignal<unknown>(null);
  const busy = useSignal(true);
  const again = useRef<() => void>(() => undefined);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let isFirst = true;
    const run = async () => {
      clearTimeout(timer);
      busy.value = true;
      const began = performance.now();
      try {
        value.value = await load(stop.signal);
        error.value = null;
      } catch (failure) {
        if (stop.signal.aborted) return;
        error.value = failure;
        if (isFirst) value.value = null; // It was of other keys.
      }
      isFirst = false;
      busy.value = false;
      // What is slow to answer is asked less often.
      if (everyMs > 0) plan(Math.max(everyMs, 10 * (performance.now() - began)));
    };
    const plan = (ms: number) => {
      timer = window.setTimeout(() => (document.hidden ? plan(ms) : void run()), ms);
    };
    again.current = () => void run();
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...keys, everyMs]);
  return { value, error, busy, again: () => again.current() };
}

/** A text that is typed, and counts when it has rested. */
export function useRested(text: Signal<string>, ms = 250): Signal<string> {
  const rested = useSignal(text.value);
  const now = useComputed(() => text.value).value;
  useEffect(() => {
    const timer = setTimeout(() => (rested.value = now), ms);
    return () => clearTimeout(timer);
  }, [now]);
  return rested;
}
