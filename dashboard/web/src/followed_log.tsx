// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A log that is watched as it grows.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { follow, Refusal } from "./api";
import { Card, Copy, Empty, Problem } from "./parts";
import { TextView } from "./text_view";

const kMostCharacters = 1 << 20; // Of a log that is shown; the beginning goes first.
const kFirstPauseMs = 500;
const kLongestPauseMs = 15_000;

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

/** A log from its beginning, and what comes, until it ends. After a broken connection it is read anew. */
export function FollowedLog(props: { path: string; title?: string }) {
  const text = useSignal("");
  const state = useSignal<"follows" | "ended" | "lost" | "refused">("follows");
  const wrong = useSignal<unknown>(null);
  const find = useSignal("");
  useEffect(() => {
    const stop = new AbortController();
    text.value = "";
    state.value = "follows";
    wrong.value = null;
    let waiting = "";
    let timer = 0;
    let anew = false; // What is shown was of the connection before.
    // However fast it comes, it is laid out ten times a second.
    const take = (piece: string) => {
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
    };
    const run = async () => {
      for (let pauseMs = kFirstPauseMs; !stop.signal.aborted; ) {
        try {
          await follow(props.path, (piece) => ((pauseMs = kFirstPauseMs), take(piece)), stop.signal);
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
          wrong.value = isFinal(error) ? error : null;
          if (isFinal(error)) return;
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
