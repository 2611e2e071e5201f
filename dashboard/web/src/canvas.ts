// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Draws lanes over time. What has been drawn is moved, not drawn again: only new bars cost anything,
// and of these at most some thousands a frame, since a browser without a GPU hangs on more.
import type { Bar, Lane } from "./bars";
import { Kind } from "./bars";
import { colorOf, css } from "./colors";
import type { Mark } from "./marks";

const kMostPerFrame = 4000;
const kAheadMs = 3000; // What the picture has room for beyond its right edge, for bars that come before they are seen.

export class LaneCanvas {
  msPerPixel = 20;
  rowHeight = 18;
  private lanes: Lane[] = [];
  private rows = new Map<string, number>();
  private readonly picture = document.createElement("canvas");
  private readonly to = this.picture.getContext("2d", { alpha: false })!;
  private left = 0; // The time at the picture's left edge.
  private width = 0;
  private scale = 1;
  private queue: [number, Bar][] = [];
  private colors = { back: "", line: "", bad: "", gone: "", warn: "" };

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** How long a time is seen. */
  get spanMs(): number {
    return this.width * this.msPerPixel;
  }

  /** Begins anew: other lanes, another size, other colours, another time. */
  reset(lanes: Lane[], right: number): void {
    this.lanes = lanes;
    this.rows = new Map(lanes.map((lane, i) => [lane.key, i]));
    this.scale = devicePixelRatio || 1;
    this.width = this.canvas.parentElement!.clientWidth;
    const height = Math.max(1, lanes.length) * this.rowHeight;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(this.width * this.scale);
    this.canvas.height = Math.round(height * this.scale);
    this.picture.width = Math.round((this.width + kAheadMs / this.msPerPixel) * this.scale);
    this.picture.height = this.canvas.height;
    this.colors = { back: css("--panel"), line: css("--hair"), bad: css("--bad"), gone: css("--dim"), warn: css("--warn-fill") };
    this.left = right - this.spanMs;
    this.clear(0, this.picture.width);
    this.queue = [];
    const from = this.left;
    const until = this.left + this.pictureMs();
    for (const [i, lane] of lanes.entries()) {
      for (const bar of lane.bars) if (bar.end >= from && bar.begin <= until) this.queue.push([i, bar]);
    }
  }

  add(fresh: [Lane, Bar[]][]): void {
    for (const [lane, bars] of fresh) {
      const row = this.rows.get(lane.key);
      if (row !== undefined) for (const bar of bars) this.queue.push([row, bar]);
    }
  }

  /** Shows the time until `right`; `now`: what still runs is drawn until then. `marks`: over the lanes of their nodes. */
  frame(right: number, now: number, marks: Mark[]): void {
    const wanted = right - this.spanMs;
    const aside = ((wanted - this.left) / this.msPerPixel) * this.scale;
    if (aside >= (kAheadMs / this.msPerPixel / 2) * this.scale) this.scroll(wanted);
    for (const [row, bar] of this.queue.splice(0, kMostPerFrame)) this.bar(row, bar);
    const offset = Math.round(((wanted - this.left) / this.msPerPixel) * this.scale);
    const screen = this.canvas.getContext("2d", { alpha: false })!;
    screen.fillStyle = this.colors.back;
    screen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    screen.drawImage(this.picture, -offset, 0);
    this.running(screen, wanted, now);
    for (const mark of marks) this.mark(screen, wanted, mark);
  }

  laneAt(y: number): Lane | undefined {
    return this.lanes[Math.floor(y / this.rowHeight)];
  }

  /** A node without a lane has the whole height. */
  rowsOf(node: number): [number, number] {
    const first = this.lanes.findIndex((lane) => lane.node === node);
    return first < 0 ? [0, this.lanes.length] : [first, this.lanes.findLastIndex((lane) => lane.node === node) + 1];
  }

  private pictureMs(): number {
    return (this.picture.width / this.scale) * this.msPerPixel;
  }

  private scroll(left: number): void {
    const by = Math.round(((left - this.left) / this.msPerPixel) * this.scale);
    if (by <= 0) return;
    if (by < this.picture.width) this.to.drawImage(this.picture, -by, 0);
    this.clear(Math.max(0, this.picture.width - by), Math.min(by, this.picture.width));
    this.left += (by / this.scale) * this.msPerPixel;
  }

  private clear(x: number, width: number): void {
    this.to.fillStyle = this.colors.back;
    this.to.fillRect(x, 0, width, this.picture.height);
    this.to.fillStyle = this.colors.line;
    for (let row = 1; row < this.lanes.length; ++row) {
      this.to.fillRect(x, Math.round(row * this.rowHeight * this.scale) - 1, width, 1);
    }
  }

  private bar(row: number, bar: Bar): void {
    const x = ((bar.begin - this.left) / this.msPerPixel) * this.scale;
    const width = Math.max(1, ((bar.end - bar.begin) / this.msPerPixel) * this.scale);
    if (x + width < 0 || x > this.picture.width) return;
    const top = row * this.rowHeight * this.scale;
    const room = (this.rowHeight - 3) * this.scale;
    const height = bar.kind === Kind.column ? Math.max(this.scale, room * bar.share) : room;
    this.to.fillStyle = bar.kind === Kind.cancelled ? this.colors.gone : bar.kind === Kind.failed ? this.colors.bad : colorOf(bar.name);
    // A gap of a hair between two calls, where there is room for one.
    this.to.fillRect(x, top + this.scale + (room - height), width > 3 * this.scale ? width - this.scale * 0.5 : width, height);
  }

  private running(screen: CanvasRenderingContext2D, left: number, now: number): void {
    screen.globalAlpha = 0.55;
    for (const [row, lane] of this.lanes.entries()) {
      for (const call of lane.running) {
        const x = Math.max(0, ((call.begin - left) / this.msPerPixel) * this.scale);
        const end = Math.min(this.canvas.width, ((now - left) / this.msPerPixel) * this.scale);
        if (end <= x) continue;
        screen.fillStyle = colorOf(call.name);
        screen.fillRect(x, (row * this.rowHeight + 1) * this.scale, end - x, (this.rowHeight - 3) * this.scale);
      }
    }
    screen.globalAlpha = 1;
  }

  /** A line from the top of its node's lanes to their end, below a wedge that points at its time. */
  private mark(screen: CanvasRenderingContext2D, left: number, mark: Mark): void {
    const x = Math.round(((mark.time - left) / this.msPerPixel) * this.scale);
    if (x < 0 || x > this.canvas.width) return;
    const [first, end] = this.rowsOf(mark.node);
    const top = first * this.rowHeight * this.scale;
    const height = (end - first) * this.rowHeight * this.scale;
    const thin = 1.5 * this.scale;
    screen.fillStyle = this.colors.back;
    screen.fillRect(x - 1.5 * thin, top, 3 * thin, height);
    screen.fillStyle = mark.tone === "bad" ? this.colors.bad : this.colors.warn;
    screen.fillRect(x - thin / 2, top, thin, height);
    screen.beginPath();
    screen.moveTo(x - 4 * this.scale, top);
    screen.lineTo(x + 4 * this.scale, top);
    screen.lineTo(x, top + 6 * this.scale);
    screen.fill();
  }
}
