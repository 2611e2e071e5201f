// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Long text as it comes from programs: each line as it was printed, with its colours.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { pieces } from "./ansi";
import { count } from "./format";

const kLines = 3000; // Of what a browser lays out at once.

interface Props {
  text: string;
  label: string;
  /** Lines with this only. */
  find?: string;
  /** The end stays in view, unless the reader has scrolled away from it. */
  follows?: boolean;
}

export function TextView(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const lines = useMemo(() => {
    const all = props.text.replace(/\n$/, "").split("\n");
    const wanted = props.find?.toLowerCase();
    return wanted ? all.filter((line) => line.toLowerCase().includes(wanted)) : all;
  }, [props.text, props.find]);
  const shown = lines.slice(-kLines);
  useEffect(() => {
    const element = box.current;
    if (element && props.follows && atEnd.current) element.scrollTop = element.scrollHeight;
  });
  // Of the event: one may come when the page is left, and `box` is empty.
  const watch = (event: Event) => {
    const element = event.currentTarget as HTMLDivElement;
    atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  };
  return (
    <>
      {lines.length > shown.length && (
        <p class="hint">
          The last {count(shown.length)} of {count(lines.length)} lines.
        </p>
      )}
      <div class="text" ref={box} onScroll={watch} tabIndex={0} role="log" aria-label={props.label} aria-live="off">
        {shown.map((line) => (
          <Line of={line} />
        ))}
      </div>
    </>
  );
}

function Line(props: { of: string }) {
  const parts = useMemo(() => pieces(props.of.replace(/\r$/, "")), [props.of]);
  return (
    <div>
      {parts.length === 0 ? "\u200b" : parts.map((part) => (part.classes ? <span class={part.classes}>{part.text}</span> : part.text))}
    </div>
  );
}
