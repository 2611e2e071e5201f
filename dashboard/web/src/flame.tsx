// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A flame graph of the profile that is always taken.
import { type Signal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type DriverRow, getJson, type Rows } from "./api";
import { now } from "./clock";
import { colorOf, css, dark } from "./colors";
import { brief, clock, duration, percent, span } from "./format";
import { digest } from "./live";
import { Card, Choice, Empty, Problem, useLoaded } from "./parts";
import { callersOf, type Frame, hottest, type ProfileRow, treeOf } from "./profile";
import { go, query, withQuery } from "./router";

const kRow = 19;
const kNarrowest = 0.6; // Pixels; what is narrower is not drawn.
const kKept = 3600; // Seconds of which there is a profile.
const kStep = 30; // Seconds.
const kWindows = [
  ["60", "1 min"],
  ["600", "10 min"],
  ["3600", "1 h"],
] as const;
const kWays = [
  ["callees", "From the top"],
  ["callers", "By own time"],
] as const;

/** What the address says of the profile: of which node and job, how long a time, and until when (Unix, s); null: now. */
function useWanted() {
  const of = (name: string) => query.value.get(`profile.${name}`) ?? "";
  const to = Number(of("to"));
  const long = kWindows.find(([seconds]) => seconds === of("for"))?.[0] ?? "600";
  return { node: of("node"), job: of("job"), long, to: to > 0 ? to : null };
}

function want(changes: { node?: string; job?: string; for?: string; to?: string | null }): void {
  const named = Object.entries(changes).map(([name, value]) => [`profile.${name}`, value || null]);
  go(withQuery(Object.fromEntries(named) as Record<string, string | null>), { replaces: true });
}

export function FlameCard(props: { fn: string }) {
  const way = useSignal<"callees" | "callers">("callees");
  const find = useSignal("");
  const { node, job, long, to } = useWanted();
  const parameters = new URLSearchParams({ from: to === null ? `-${long}` : String(to - Number(long)) });
  if (to !== null) parameters.set("to", String(to));
  if (props.fn) parameters.set("function", props.fn);
  if (node) parameters.set("node", node);
  if (job) parameters.set("job", job);
  const { value, error } = useLoaded(
    async (stop) => {
      const answer = await getJson<{ functions: ProfileRow[]; truncated: boolean }>(`/api/sheaf/profile?${parameters}`, stop);
      return { tree: treeOf(answer.functions), truncated: answer.truncated };
    },
    [parameters.toString()],
    to === null ? 5000 : 0, // What is past stays as it is.
  );
  const tree = useComputed(() => {
    const made = value.value?.tree ?? null;
    return made !== null && way.value === "callers" ? callersOf(made) : made;
  });
  const has = (tree.value?.total ?? 0) > 0;
  return (
    <Card
      title="Where the time goes"
      note={
        <span class="bar">
          <input
            type="search"
            aria-label="Find in the profile"
            placeholder="Find"
            value={find.value}
            onInput={(event) => (find.value = event.currentTarget.value)}
          />
          <Whose node={node} job={job} />
          <Choice label="Which way up" value={way.value} options={kWays} onChange={(next) => (way.value = next)} />
        </span>
      }
    >
      <Window long={long} to={to} />
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && !has && (
        <Empty>No samples{to === null ? "" : " of that time"}: Python calls are looked at 50 times a second while they run.</Empty>
      )}
      {has && (
        <>
          <Flame tree={tree} find={find} />
          <Hottest tree={tree.value!} />
          <p class="hint">
            {value.value!.truncated && "What took least is left out. "}
            As a file:{" "}
            {["speedscope", "pprof", "folded", "svg"].map((format) => (
              <>
                <a href={`/api/sheaf/profile?${parameters}&format=${format}`} download={`profile.${format}`}>
                  {format}
                </a>{" "}
              </>
            ))}
          </p>
        </>
      )}
    </Card>
  );
}

/** Of which nodes and jobs, where there are several. */
function Whose(props: { node: string; job: string }) {
  const nodes = (digest.value?.nodes ?? []).map((one) => one.node);
  const { value } = useLoaded((stop) => getJson<Rows<DriverRow>>("/api/sheaf/jobs?order=-job", stop), [], 10_000);
  const jobs = value.value?.rows ?? [];
  return (
    <>
      {(nodes.length > 1 || props.node) && (
        <select aria-label="Of which nodes" value={props.node} onChange={(event) => want({ node: event.currentTarget.value })}>
          <option value="">all nodes</option>
          {withChosen(nodes, props.node).map((node) => (
            <option value={String(node)}>node {node}</option>
          ))}
        </select>
      )}
      {(jobs.length > 1 || props.job) && (
        <select aria-label="Of which jobs" value={props.job} onChange={(event) => want({ job: event.currentTarget.value })}>
          <option value="">all jobs</option>
          {withChosen(jobs.map((one) => one.job), props.job).map((job) => (
            <option value={String(job)} title={jobs.find((one) => one.job === job)?.entrypoint}>
              job {job}
            </option>
          ))}
        </select>
      )}
    </>
  );
}

/** A link may name what is not among those that are known. */
function withChosen(known: number[], chosen: string): number[] {
  return chosen === "" || known.includes(Number(chosen)) ? known : [...known, Number(chosen)];
}

/** Which part of the hour that nodes keep. */
function Window(props: { long: (typeof kWindows)[number][0]; to: number | null }) {
  const { long, to } = props;
  const dragged = useSignal<number | null>(null); // Seconds before now, while it is not chosen yet.
  const ago = dragged.value ?? (to === null ? 0 : Math.max(0, now() / 1000 - to));
  const end = dragged.value === null && to !== null ? to * 1000 : now() - ago * 1000;
  const isNow = to === null && !dragged.value;
  const place = (secondsAgo: number) => `${Math.max(0, 100 * (1 - secondsAgo / kKept))}%`;
  const choose = (seconds: number) => {
    dragged.value = null;
    want({ to: seconds < kStep ? null : String(Math.round(now() / 1000 - seconds)) });
  };
  return (
    <div class="bar window">
      <Choice label="How long a time" value={long} options={kWindows} onChange={(next) => want({ for: next })} />
      <label class="bar grows">
        until
        <input
          type="range"
          class="grows"
          style={{ "--begin": place(ago + Number(long)), "--end": place(ago) }}
          aria-label="Until when"
          aria-valuetext={isNow ? "now" : `${span(ago)} ago`}
          min={-kKept}
          max={0}
          step={kStep}
          value={-ago}
          onInput={(event) => (dragged.value = -Number(event.currentTarget.value))}
          onChange={(event) => choose(-Number(event.currentTarget.value))}
        />
      </label>
      <span class="dim">
        {clock(end - Number(long) * 1000)} – {isNow ? "now" : clock(end)}
      </span>
      <button type="button" disabled={isNow} onClick={() => choose(0)}>Now</button>
    </div>
  );
}

function Hottest(props: { tree: Frame }) {
  const rows = hottest(props.tree, 8);
  return (
    <table class="compact sums">
      <caption>By their own time</caption>
      <tbody>
        {rows.map((row) => (
          <tr>
            <th scope="row" class="mono">
              {row.name} <span class="dim">{shortFile(row.file)}</span>
            </th>
            <td class="num">{duration(row.self * 1000)}</td>
            <td class="num">{percent(row.self / props.tree.total)}</td>
            <td class="wide">
              <i class="length" style={{ width: `${(row.self / rows[0]!.self) * 100}%` }} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function shortFile(file: string): string {
  return file.split("/").slice(-2).join("/");
}

interface Box {
  frame: Frame;
  x: number;
  y: number;
  width: number;
}

/** The boxes of `zoom` and below it over the whole width, its callers full above it. */
function layout(zoom: Frame, width: number): Box[] {
  const boxes: Box[] = [];
  for (let one: Frame | null = zoom.parent; one !== null; one = one.parent) {
    boxes.push({ frame: one, x: 0, y: one.depth * kRow, width });
  }
  const place = (one: Frame, x: number, room: number) => {
    if (room < kNarrowest) return;
    boxes.push({ frame: one, x, y: one.depth * kRow, width: room });
    let at = x;
    for (const child of one.children) {
      const share = one.total > 0 ? (child.total / one.total) * room : 0;
      place(child, at, share);
      at += share;
    }
  };
  place(zoom, 0, width);
  return boxes;
}

function draw(canvas: HTMLCanvasElement, boxes: Box[], find: string, at: Frame | null): void {
  const width = canvas.clientWidth;
  const height = (Math.max(0, ...boxes.map((box) => box.frame.depth)) + 1) * kRow;
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const to = canvas.getContext("2d")!;
  to.scale(scale, scale);
  to.font = "11px ui-monospace, Menlo, Consolas, monospace";
  to.textBaseline = "middle";
  const wanted = find.toLowerCase();
  const ink = dark.value ? "#10131a" : "#ffffff";
  for (const { frame, x, y, width: room } of boxes) {
    const fits = !wanted || frame.name.toLowerCase().includes(wanted) || frame.file.toLowerCase().includes(wanted);
    to.globalAlpha = fits ? 1 : 0.22;
    to.fillStyle = frame.depth === 0 ? css("--faint") : colorOf(frame.name);
    to.fillRect(x, y, Math.max(0.5, room - 1), kRow - 1);
    if (frame === at) {
      to.strokeStyle = css("--text");
      to.strokeRect(x + 0.5, y + 0.5, Math.max(1, room - 2), kRow - 2);
    }
    if (room < 28) continue;
    to.fillStyle = frame.depth === 0 ? css("--text") : ink;
    const letters = Math.floor((room - 8) / 6.7);
    const text = frame.name.length > letters ? `${frame.name.slice(0, Math.max(1, letters - 1))}…` : frame.name;
    to.fillText(text, x + 4, y + kRow / 2);
  }
  to.globalAlpha = 1;
}

function Flame(props: { tree: Signal<Frame | null>; find: Signal<string> }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const boxes = useRef<Box[]>([]);
  const path = useSignal<string[]>([]); // Names down to what is zoomed into: they outlive a new tree.
  const at = useSignal<Frame | null>(null);
  const tree = props.tree.value;
  const zoom = useComputed(() => {
    let one = props.tree.value;
    for (const name of path.value) {
      const child = one?.children.find((next) => next.name === name);
      if (!child) break;
      one = child;
    }
    return one;
  });
  const paint = () => {
    const element = canvas.current;
    if (element === null || zoom.value === null) return;
    boxes.current = layout(zoom.value, element.clientWidth);
    draw(element, boxes.current, props.find.value, at.value);
  };
  useEffect(() => {
    paint();
    const watch = new ResizeObserver(paint);
    watch.observe(canvas.current!.parentElement!);
    return () => watch.disconnect();
  }, [tree, zoom.value, props.find.value, dark.value, at.value]);
  const frameAt = (event: MouseEvent): Frame | null =>
    boxes.current.find(
      (box) => event.offsetX >= box.x && event.offsetX < box.x + box.width && event.offsetY >= box.y && event.offsetY < box.y + kRow,
    )?.frame ?? null;
  const zoomTo = (one: Frame | null) => {
    const names: string[] = [];
    for (let next = one; next !== null && next.parent !== null; next = next.parent) names.unshift(next.name);
    path.value = names;
    at.value = null;
  };
  const keys = (event: KeyboardEvent) => {
    const here = at.value ?? zoom.value;
    if (here === null) return;
    const around = here.parent?.children ?? [];
    const place = around.indexOf(here);
    const next: Record<string, Frame | null | undefined> = {
      ArrowDown: here.children[0],
      ArrowUp: here.parent,
      ArrowLeft: around[place - 1],
      ArrowRight: around[place + 1],
    };
    if (event.key in next) at.value = next[event.key] ?? here;
    else if (event.key === "Enter" || event.key === "+") zoomTo(here);
    else if (event.key === "Escape" || event.key === "-") zoomTo(zoom.value?.parent ?? null);
    else return;
    event.preventDefault();
  };
  const shown = at.value ?? zoom.value;
  const total = tree?.total ?? 0;
  return (
    <div class="flame">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label="Flame graph. Arrows walk, Enter zooms in, Escape zooms out."
        onMouseMove={(event) => (at.value = frameAt(event))}
        onMouseLeave={() => (at.value = null)}
        onClick={(event) => zoomTo(frameAt(event))}
        onKeyDown={keys}
      />
      <p class="hint mono" aria-live="polite">
        {shown && total > 0 && (
          <>
            <b>{shown.name}</b> {shortFile(shown.file)}
            {shown.line ? `:${shown.line}` : ""} · {duration(shown.total * 1000)}, {percent(shown.total / total)} · itself{" "}
            {duration(shown.self * 1000)}
          </>
        )}
        {path.value.length > 0 && (
          <button type="button" class="quiet" onClick={() => zoomTo(null)}>
            Whole graph ({brief(path.value.length)} up)
          </button>
        )}
      </p>
    </div>
  );
}
