// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A log that is watched as it grows.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { follow, getText, Refusal } from "./api";
import { Card, Copy, Empty, Problem } from "./parts";
import { TextView } from "./text_view";

const kMostCharacters = 1 << 20; // Of a log that is shown; the beginning goes first.
const kFirstPauseMs = 500;
const kLongestPauseMs = 15_000;
const kSilentMs = 15_000; // Then the end of the log is asked for: a connection may be dead that nobody has closed.
const kSilentEndMs = 5000; // What writes the log has ended, so that the stream has to.
const kOnItsWayMs = 3000; // What the log has just got comes by then.

/** The server does not want us; all else may be better the next time. */
function isFinal(error: unknown): boolean {
  return error instanceof Refusal && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/** Ends early when the page goes. */
function rest(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((then) => {
    const timer = setTimeout(then, ms);
    stop.addEventListener("abort", () => (clearTimeout(timer), then()), { once: true });
  });
}

/**
 * Returns when nothing has come for so long that the stream must be dead: its log has more, cannot be
 * asked for, or ought to have ended.
 */
async function untilDead(log: { shown: () => string; heardAt: () => number; over: () => boolean; lastLine: string }, stop: AbortSignal) {
  const silence = () => performance.now() - log.heardAt();
  for (let askAt = kSilentMs; !stop.aborted; ) {
    await rest(1000, stop);
    if (log.over() && silence() > kSilentEndMs) return;
    if (silence() < kSilentMs) askAt = kSilentMs;
    if (silence() < askAt || stop.aborted) continue;
    askAt = silence() + kSilentMs;
    try {
      const last = await getText(log.lastLine, stop);
      if (log.shown().endsWith(last.trimEnd())) continue;
    } catch (error) {
      if (error instanceof Refusal && error.status > 0) continue; // It answers; there is no such file yet.
    }
    await rest(kOnItsWayMs, stop);
    if (silence() > kSilentMs) return;
  }
}

/**
 * A log from its beginning, and what comes, until it ends. After a broken connection it is read anew.
 * `lastLine`: where its last line is to be had. `over`: what writes it has ended.
 */
export function FollowedLog(props: { path: string; lastLine: string; over?: boolean; title?: string }) {
  const text = useSignal("");
  const state = useSignal<"follows" | "ended" | "lost" | "refused">("follows");
  const wrong = useSignal<unknown>(null);
  const find = useSignal("");
  const over = useRef(false);
  over.current = props.over ?? false;
  useEffect(() => {
    const stop = new AbortController();
    text.value = "";
    state.value = "follows";
    wrong.value = null;
    let waiting = "";
    let timer = 0;
    let anew = false; // What is shown was of the connection before.
    let heardAt = 0;
    // However fast it comes, it is laid out ten times a second.
    const take = (piece: string) => {
      heardAt = performance.now();
      waiting += piece;
      if (timer === 0) timer = window.setTimeout(flush, 100);
    };
    const flush = () => {
      timer = 0;
      const all = (anew ? "" : text.value) + waiting;
      anew = false;
      text.value = all.length > kMostCharacters ? all.slice(all.indexOf("\n", all.length - kMostCharacters) + 1) : all;
      waiting = "";
      state.value = "follows";
      wrong.value = null;
    };
    const run = async () => {
      for (let pauseMs = kFirstPauseMs; !stop.signal.aborted; ) {
        const dead = new AbortController();
        heardAt = performance.now();
        const watched = {
          shown: () => text.value.trimEnd(),
          heardAt: () => heardAt,
          over: () => over.current,
          lastLine: props.lastLine,
        };
        const either = AbortSignal.any([stop.signal, dead.signal]);
        void untilDead(watched, either).then(() => dead.abort());
        try {
          await follow(props.path, (piece) => ((pauseMs = kFirstPauseMs), take(piece)), either);
          clearTimeout(timer);
          flush();
          state.value = "ended";
          return;
        } catch (error) {
          if (stop.signal.aborted) return;
          clearTimeout(timer);
          timer = 0;
          waiting = "";
          anew = true;
          state.value = isFinal(error) ? "refused" : "lost";
          wrong.value = error instanceof Refusal && error.status > 0 ? error : null;
          if (isFinal(error)) return;
        } finally {
          dead.abort();
        }
        await rest(pauseMs, stop.signal);
        pauseMs = Math.min(kLongestPauseMs, 2 * pauseMs);
      }
    };
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [props.path]);
  const [words, tone] = (
    {
      follows: ["follows it", "good"],
      ended: ["ended", "plain"],
      lost: ["lost, tries again", "bad"],
      refused: ["lost", "plain"],
    } as const
  )[state.value];
  return (
    <Card
      title={props.title ?? "Output"}
      note={
        <span class="bar">
          <span class={`state ${tone}`}>{words}</span>
          <input
            type="search"
            aria-label="Find in the log"
            placeholder="Find"
            value={find.value}
            onInput={(event) => (find.value = event.currentTarget.value)}
          />
          <Copy label="Copy" text={() => text.value} />
        </span>
      }
    >
      {wrong.value !== null && <Problem of={wrong.value} />}
      {text.value === "" && state.value !== "refused" ? (
        <Empty>Nothing is printed{state.value === "ended" ? "" : " yet"}.</Empty>
      ) : (
        <TextView text={text.value} find={find.value} label="Output" follows />
      )}
    </Card>
  );
}
