// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The task stream: what each thread of each worker runs, as it runs.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Bar, Kind, type Lane, Lanes } from "../bars";
import { LaneCanvas } from "../canvas";
import { now } from "../clock";
import { colorOf, dark } from "../colors";
import { brief, clock, count, duration, percent } from "../format";
import { connection, digest, onDigest, skipped, streams, sum, wantLanes } from "../live";
import { type Mark, Marks } from "../marks";
import { Card, Empty, Page } from "../parts";
import { Link, linkTo } from "../router";

const kMostLanes = 200;
const kLanesOfNode = 32;
const kFinest = 0.25; // Milliseconds a pixel; so is the next.
const kCoarsest = 100;
const kNameHeight = 12;
const kMarkReach = 5; // Pixels beside a mark that show its words.
const kBehindPeriods = 2; // The right edge is so far behind, so that what it passes has arrived.

interface View {
  paused: boolean;
  /** The time at the right edge while paused. */
  right: number;
  msPerPixel: number;
}

interface Shown {
  lanes: Lane[];
  leftOut: number;
  marks: Mark[];
}

interface Hover {
  lane: Lane;
  bar: Bar | null;
  mark: Mark | null;
  x: number;
  y: number;
  rightHalf: boolean; // Of the picture: there is room at the left.
}

/** Until when the cluster has been heard of, by its clock: what runs then is not known to run on. */
function heard(): number {
  return connection.value === "live" ? now() : (digest.value?.unix_ms ?? 0);
}

export function Stream() {
  const view = useSignal<View>({ paused: false, right: 0, msPerPixel: 20 });
  const hover = useSignal<Hover | null>(null);
  const shown = useSignal<Shown>({ lanes: [], leftOut: 0, marks: [] });
  const nodes = digest.value?.nodes.length ?? 0;
  const perNode = Math.max(1, Math.min(kLanesOfNode, Math.floor(kMostLanes / Math.max(1, nodes))));
  useEffect(() => {
    if (nodes === 0) return undefined; // All lanes of how many nodes?
    wantLanes(perNode);
    return () => wantLanes(0);
  }, [perNode, nodes === 0]);
  const zoom = (by: number) => {
    const next = Math.min(kCoarsest, Math.max(kFinest, view.value.msPerPixel * by));
    view.value = { ...view.value, msPerPixel: next };
  };
  const pause = () => (view.value = { ...view.value, paused: !view.value.paused, right: edge() });
  const pan = (ms: number) => {
    const right = Math.min(edge(), (view.value.paused ? view.value.right : edge()) + ms);
    view.value = { ...view.value, paused: true, right };
  };
  const keys = (event: KeyboardEvent) => {
    const by = 100 * view.value.msPerPixel;
    const does: Record<string, () => void> = {
      " ": pause,
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      ArrowLeft: () => pan(-by),
      ArrowRight: () => pan(by),
    };
    if (!does[event.key]) return;
    event.preventDefault();
    does[event.key]!();
  };
  const { lanes, leftOut } = shown.value;
  return (
    <Page
      title="Task stream"
      aside={
        <>
          <button type="button" aria-pressed={view.value.paused} onClick={pause}>
            {view.value.paused ? "Go on" : "Pause"}
          </button>
          <button type="button" aria-label="Zoom in" onClick={() => zoom(0.5)}>+</button>
          <button type="button" aria-label="Zoom out" onClick={() => zoom(2)}>−</button>
        </>
      }
    >
      <Legend />
      <Card class="flush stream-card">
        {lanes.length === 0 && (
          <Empty>
            {connection.value === "absent"
              ? "This dashboard has no live figures."
              : "No worker has run anything since this page was opened."}
          </Empty>
        )}
        <div class="stream" onKeyDown={keys}>
          <LaneNames lanes={lanes} rowHeight={rowHeightOf(lanes.length)} />
          <Picture view={view} hover={hover} shown={shown} />
        </div>
      </Card>
      <p class="hint">
        A call of 1 ms or more is a rectangle, shorter ones are columns as high as their thread was busy. Red failed, grey was cancelled, pale runs now.
        A red line is a death, or a disk that fails; a yellow one, objects that went to disk. A pointer on it shows which.
        {leftOut > 0 && ` The busiest threads are shown; ${count(leftOut)} are left out.`}
        {skipped.value > 0 && ` This page was too slow for ${count(skipped.value)} updates.`}
        {lost() > 0 && ` ${count(lost())} calls were overwritten before their node looked: Functions counts them.`} Keys: space pauses, + and − zoom, arrows
        move.
      </p>
    </Page>
  );
}

function lost(): number {
  return sum(digest.value?.nodes ?? [], (node) => node.events_lost);
}

/** The time that the right edge shows now, by the cluster's clock. */
function edge(): number {
  const period = digest.value?.period_ms ?? 250;
  return now() - kBehindPeriods * period;
}

function rowHeightOf(lanes: number): number {
  return lanes <= 10 ? 32 : lanes <= 24 ? 22 : lanes <= 64 ? 14 : 8;
}

function Legend() {
  const functions = digest.value?.functions ?? [];
  return (
    <ul class="legend wide">
      {functions.slice(0, 12).map((one) => (
        <li title={one.name}>
          <i class="swatch" style={{ background: colorOf(one.name) }} />
          <Link to={linkTo.fn(one.name)}>{one.name}</Link>
          <em>{brief(one.per_second)}/s</em>
        </li>
      ))}
    </ul>
  );
}

function LaneNames(props: { lanes: Lane[]; rowHeight: number }) {
  let before = 0;
  let room = kNameHeight; // Since the last name that is written.
  return (
    <ol class="lane-names" style={{ lineHeight: `${props.rowHeight}px` }}>
      {props.lanes.map((lane) => {
        const first = lane.node !== before;
        before = lane.node;
        room += props.rowHeight;
        const named = room >= kNameHeight && (props.rowHeight >= kNameHeight || first);
        if (named) room = 0;
        return (
          <li
            key={lane.key}
            style={{ height: `${props.rowHeight}px` }}
            class={first ? "first" : ""}
            title={`node ${lane.node}, process ${lane.process}, pid ${lane.pid}, thread ${lane.thread}`}
          >
            {named && (props.rowHeight < kNameHeight ? `node ${lane.node}` : lane.thread > 0 ? `${lane.process}·${lane.thread}` : lane.process)}
          </li>
        );
      })}
    </ol>
  );
}

function Picture(props: {
  view: { value: View };
  hover: { value: Hover | null };
  shown: { value: Shown };
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawing = useRef<LaneCanvas | null>(null);
  const { view, hover, shown } = props;
  const now = view.value;
  useEffect(() => {
    const drawn = new LaneCanvas(canvas.current!);
    drawing.current = drawn;
    const lanes = new Lanes();
    const marks = new Marks();
    const right = () => (view.value.paused ? view.value.right : edge());
    let sawBefore = "";
    let stream = -1;
    const redraw = () => {
      const ordered = lanes.ordered(kMostLanes);
      drawn.rowHeight = rowHeightOf(ordered.length);
      drawn.msPerPixel = view.value.msPerPixel;
      drawn.reset(ordered, right());
      shown.value = { ...shown.value, lanes: ordered, leftOut: lanes.leftOut + (lanes.all.size - ordered.length) };
    };
    const end = onDigest((next) => {
      // A new stream tells the last minute again.
      const anew = stream !== streams.value;
      if (anew) lanes.all.clear();
      stream = streams.value;
      const { fresh, changed } = lanes.add(next);
      if (changed || anew || sawBefore === "") redraw();
      else drawn.add(fresh);
      if (marks.add(next)) shown.value = { ...shown.value, marks: marks.all };
      if (lanes.leftOut !== shown.value.leftOut && !changed) {
        shown.value = { ...shown.value, leftOut: lanes.leftOut + (lanes.all.size - shown.value.lanes.length) };
      }
      sawBefore = "seen";
    });
    let looks = "";
    let frame = requestAnimationFrame(function paint() {
      frame = requestAnimationFrame(paint);
      const look = `${view.value.msPerPixel}/${view.value.paused ? view.value.right : ""}/${dark.value}/${canvas.current?.parentElement?.clientWidth}`;
      if (look !== looks) redraw();
      looks = look;
      // Nothing moves while it is paused or stale, but what is still to be drawn.
      drawn.frame(right(), view.value.paused ? right() : Math.min(edge(), heard()), shown.value.marks);
    });
    return () => {
      cancelAnimationFrame(frame);
      end();
    };
  }, []);
  const point = (event: MouseEvent) => {
    const lane = drawing.current?.laneAt(event.offsetY);
    if (lane === undefined) return (hover.value = null);
    const right = now.paused ? now.right : edge();
    const time = right - (canvas.current!.clientWidth - event.offsetX) * now.msPerPixel;
    const slack = now.msPerPixel;
    const mark = markAt(shown.value, lane.node, time, kMarkReach * now.msPerPixel);
    const bar = lane.bars.findLast((one) => one.begin - slack <= time && one.end + slack >= time) ?? null;
    hover.value = { lane, bar, mark, x: event.offsetX, y: event.offsetY, rightHalf: event.offsetX > canvas.current!.clientWidth / 2 };
    return undefined;
  };
  return (
    <div class="picture">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label={`Task stream of ${shown.value.lanes.length} threads${markedWith(shown.value.marks)}. Space pauses, plus and minus zoom, arrows move.`}
        onMouseMove={point}
        onMouseLeave={() => (hover.value = null)}
      />
      <Axis right={now.paused ? now.right : 0} msPerPixel={now.msPerPixel} />
      {hover.value && <Tip of={hover.value} />}
    </div>
  );
}

/** The mark that is nearest to `time`, at most `reach` away, of those that are drawn over the lanes of `node`. */
function markAt(shown: Shown, node: number, time: number, reach: number): Mark | null {
  const far = (mark: Mark) => Math.abs(mark.time - time);
  const isHere = (mark: Mark) => mark.node === node || !shown.lanes.some((lane) => lane.node === mark.node);
  const near = shown.marks.filter((mark) => far(mark) <= reach && isHere(mark)).sort((a, b) => far(a) - far(b));
  return near[0] ?? null;
}

function markedWith(marks: Mark[]): string {
  const bad = marks.filter((mark) => mark.tone === "bad").length;
  const said = [bad > 0 && `deaths and failures: ${bad}`, marks.length > bad && `went to disk: ${marks.length - bad}`].filter(Boolean);
  return said.length === 0 ? "" : `, ${said.join(", ")}`;
}

function Axis(props: { right: number; msPerPixel: number }) {
  const each = [50, 100, 250, 500, 1000, 2000, 5000, 10_000, 20_000].find((ms) => ms / props.msPerPixel >= 90) ?? 20_000;
  const marks = Array.from({ length: 12 }, (_, i) => i * each);
  return (
    <div class="axis" aria-hidden="true">
      {marks.map((ms) => (
        <span style={{ right: `${ms / props.msPerPixel}px` }}>
          {ms === 0 ? (props.right > 0 ? clock(props.right) : "now") : `−${duration(ms * 1e6).replace(".0 ", " ")}`}
        </span>
      ))}
    </div>
  );
}

const kOutcomes = ["finished", "failed", "cancelled", "many short calls"];

function Tip(props: { of: Hover }) {
  const { lane, bar, mark, x, y, rightHalf } = props.of;
  const call = bar === null ? lane.running[0] : undefined;
  const side = rightHalf ? { right: `calc(100% - ${x - 14}px)` } : { left: `${x + 14}px` };
  return (
    <div class="tip" style={{ ...side, top: `${y + 14}px` }}>
      {mark && (
        <p class={`${mark.tone}-text`}>
          {clock(mark.time)}: {mark.words}
        </p>
      )}
      {bar && (
        <>
          <b>
            <i class="swatch" style={{ background: colorOf(bar.name) }} /> {bar.name}
          </b>
          <div>
            <span>{kOutcomes[bar.kind] ?? ""}</span>
            <em>{bar.kind === Kind.column ? `${percent(bar.share)} busy` : duration((bar.end - bar.begin) * 1e6)}</em>
          </div>
          <div>
            <span>at</span>
            <em>{clock(bar.begin)}</em>
          </div>
        </>
      )}
      {call && (
        <div>
          <span>runs {call.name}</span>
          <em>since {clock(call.begin)}</em>
        </div>
      )}
      <div class="dim">
        node {lane.node}, process {lane.process}, pid {lane.pid}
      </div>
    </div>
  );
}
