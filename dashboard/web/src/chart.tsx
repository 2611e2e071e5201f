// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Lines over time.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { css, dark, wash } from "./colors";

export interface Line {
  label: string;
  color: string;
  values: (number | null)[];
}

interface Props {
  time: number[]; // Seconds since 1970.
  lines: Line[];
  label: string;
  unit: (value: number) => string;
  height?: number;
  /** Areas on top of each other. */
  stacked?: boolean;
  /** From and to, in seconds; without: all of `time`. */
  range?: [number, number];
  max?: number;
  /** Ticks at powers of two. */
  binary?: boolean;
}

const kPowersOfTwo = Array.from({ length: 60 }, (_, i) => 2 ** i);

/** Each line on top of those after it, so that the first ends up in front of all. */
function stack(lines: Line[]): (number | null)[][] {
  const tops: number[] = [];
  return lines.map((line) =>
    line.values.map((value, i) => {
      tops[i] = (tops[i] ?? 0) + (value ?? 0);
      return tops[i]!;
    }),
  );
}

const kDigitWidth = 7; // Of an axis' font; nothing in its labels is wider on average.

function options(props: Props, width: number): uPlot.Options {
  const axis = { stroke: css("--dim"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  const grid = { stroke: css("--line"), width: 1 };
  return {
    width,
    height: props.height ?? 160,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 24, 0, 0],
    scales: {
      x: props.range ? { range: () => props.range! } : {},
      y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), props.max ?? (high > 0 ? high * 1.08 : 1)] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 70, values: "{HH}:{mm}:{ss}" },
      {
        ...axis,
        grid,
        size: (_plot: uPlot, labels: string[] | null) => Math.max(66, 14 + kDigitWidth * Math.max(0, ...(labels ?? []).map((one) => one.length))),
        space: 32,
        gap: 6,
        values: (_plot: uPlot, ticks: number[]) => ticks.map(props.unit),
        ...(props.binary && { incrs: kPowersOfTwo }),
      },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: line.color,
        width: 1.5,
        fill: props.stacked ? wash(line.color) : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isDark = dark.value;
  // Drawn from behind: the tallest of stacked areas first.
  const shape = `${props.lines.map((line) => line.label + line.color).join("\n")}|${isDark}|${props.stacked}|${props.height}`;
  useEffect(() => {
    const element = box.current!;
    const now = latest.current;
    const ordered = { ...now, lines: now.stacked ? [...now.lines].reverse() : now.lines };
    const made = options(ordered, element.clientWidth || 300);
    made.scales!.x = now.range ? { range: () => latest.current.range! } : {};
    made.hooks = { setCursor: [(self) => showTip(self, latest.current, tip.current!)] };
    const drawn = new uPlot(made, dataOf(now), element);
    plot.current = drawn;
    const watch = new ResizeObserver(() => {
      if (element.clientWidth > 0) drawn.setSize({ width: element.clientWidth, height: now.height ?? 160 });
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(dataOf(props));
  });
  return (
    <div class="chart">
      <div ref={box} role="img" aria-label={props.label} />
      <div ref={tip} class="tip" hidden />
    </div>
  );
}

function dataOf(props: Props): uPlot.AlignedData {
  const values = props.stacked ? stack(props.lines).reverse() : props.lines.map((line) => line.values);
  return [props.time, ...values] as uPlot.AlignedData;
}

function showTip(plot: uPlot, props: Props, tip: HTMLDivElement): void {
  const at = plot.cursor.idx;
  if (at === null || at === undefined || plot.cursor.left === undefined || plot.cursor.left < 0) {
    tip.hidden = true;
    return;
  }
  tip.replaceChildren();
  const when = document.createElement("b");
  when.textContent = new Date(props.time[at]! * 1000).toLocaleTimeString("en-GB");
  tip.append(when);
  const shown = props.lines
    .map((line) => ({ line, value: line.values[at] }))
    .filter((one) => one.value !== null && one.value !== undefined && (one.value > 0 || props.lines.length < 5))
    .sort((a, b) => b.value! - a.value!)
    .slice(0, 12);
  for (const { line, value } of shown) {
    const row = document.createElement("div");
    const swatch = document.createElement("i");
    swatch.className = "swatch";
    swatch.style.background = line.color;
    const name = document.createElement("span");
    name.textContent = line.label;
    const text = document.createElement("em");
    text.textContent = props.unit(value!);
    row.append(swatch, name, text);
    tip.append(row);
  }
  tip.hidden = false;
  const left = plot.cursor.left + 70;
  const over = left + tip.offsetWidth + 12 > plot.width;
  tip.style.left = `${over ? left - tip.offsetWidth - 24 : left + 8}px`;
}

export function Legend(props: { lines: { label: string; color: string; value?: string }[] }) {
  return (
    <ul class="legend">
      {props.lines.map((line) => (
        <li title={line.label}>
          <i class="swatch" style={{ background: line.color }} />
          <span>{line.label}</span>
          {line.value !== undefined && <em>{line.value}</em>}
        </li>
      ))}
    </ul>
  );
}
