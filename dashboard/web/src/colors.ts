// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Light or dark, and the colour of each function.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const stored = localStorage.getItem("theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");
/** What is shown. */
export const dark = signal(false);

function apply(): void {
  dark.value = theme.value === "system" ? system.matches : theme.value === "dark";
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
}
system.addEventListener("change", apply);
apply();

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") localStorage.removeItem("theme");
  else localStorage.setItem("theme", next);
  apply();
}

// Of like lightness, so that no function shouts; none is red, which is for what fails.
const kLight = [
  "#4f6bed", "#17a08a", "#e0893a", "#a45bd1", "#3a9d4e", "#2f8fd0",
  "#b8921f", "#7a6ff0", "#7d9c2f", "#4a8f9f", "#9a7350", "#c06bc9",
];
const kDark = [
  "#7d93ff", "#3cc4ab", "#f2a661", "#c285ea", "#5fc272", "#5cb3ee",
  "#d8b441", "#a095ff", "#a3c455", "#70b8c8", "#c29b77", "#dd93e4",
];
const places = new Map<string, number>();
const taken = new Array<boolean>(kLight.length).fill(false);

/** The same for a name as long as the page lives; different ones for the first twelve. */
export function colorOf(name: string): string {
  let place = places.get(name);
  if (place === undefined) {
    let hash = 2166136261;
    for (let i = 0; i < name.length; ++i) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
    place = (hash >>> 0) % kLight.length;
    if (taken.includes(false)) while (taken[place]) place = (place + 1) % kLight.length;
    taken[place] = true;
    places.set(name, place);
  }
  return (dark.value ? kDark : kLight)[place]!;
}

/** Of the lines of a chart, in their order. */
export function colorAt(place: number): string {
  return (dark.value ? kDark : kLight)[place % kLight.length]!;
}

/** A colour of the style sheet, for canvases. */
export function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `color` as a wash over the panel. */
export function wash(color: string, share = 0.5): string {
  const parts = (hex: string) => {
    const long = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, "$&$&") : hex;
    return [1, 3, 5].map((at) => parseInt(long.slice(at, at + 2), 16));
  };
  const under = parts(css("--panel"));
  const mixed = parts(color).map((part, i) => Math.round(part * share + under[i]! * (1 - share)));
  return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
