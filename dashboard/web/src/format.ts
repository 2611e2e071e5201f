// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Numbers, sizes and times in words, as the command line writes them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value);
}

/** Three digits and a letter: 12.3k. For places where figures must not grow. */
export function brief(value: number): string {
  const size = Math.abs(value);
  if (size >= 999.5e9) return (value / 1e12).toPrecision(3) + "T";
  if (size >= 999.5e6) return (value / 1e9).toPrecision(3) + "G";
  if (size >= 999.5e3) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 9999.5) return (value / 1e3).toPrecision(3) + "k";
  if (size >= 99.5 || Number.isInteger(value)) return count(value);
  return String(Number(value.toFixed(size >= 9.95 ? 1 : 2)));
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (value >= 1023.95 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return (unit === 0 ? value.toFixed(0) : value.toFixed(1)) + " " + units[unit];
}

export function duration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  if (ns < 120e9) return `${(ns / 1e9).toFixed(1)} s`;
  return span(ns / 1e9);
}

/** Seconds: 45 s, 12 min, 3 h 20 min, 4 d. */
export function span(seconds: number): string {
  if (seconds < 1) return "now";
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d`;
}

export function percent(share: number): string {
  return share < 0.0995 && share > 0 ? `${(share * 100).toFixed(1)} %` : `${Math.round(share * 100)} %`;
}

export function clock(unixMs: number): string {
  return new Date(unixMs).toLocaleTimeString("en-GB");
}

/** The whole date, for titles. */
export function moment(unixMs: number): string {
  const date = new Date(unixMs);
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

/** An amount of a resource. */
export function amount(resource: string, value: number): string {
  if (resource === "memory" || resource === "object_store_memory") return bytes(value);
  return String(Math.round(value * 1e4) / 1e4);
}

export function resources(amounts: Record<string, number>): string {
  const rank = (name: string) => (name === "CPU" ? 0 : name === "GPU" ? 1 : 2);
  return Object.entries(amounts)
    .sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b))
    .map(([name, value]) => `${amount(name, value)} ${name}`)
    .join(", ");
}

/** The state of a call, an actor, a node: for people. */
export function words(state: string): string {
  return state.toLowerCase().replaceAll("_", " ");
}
