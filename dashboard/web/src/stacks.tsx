// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the threads of a process do now.
import { useSignal } from "@preact/signals";
import { getJson } from "./api";
import { Empty, Problem, useLoaded } from "./parts";

interface Stacks {
  stacks: {
    process: string;
    os_pid: number;
    running: string;
    words: string;
    threads: {
      name: string;
      os_thread: number | null;
      coroutine: boolean;
      words: string;
      frames: { function: string; file: string; line: number | null }[];
    }[];
  }[];
}

export function StackCard(props: { process: string }) {
  const wanted = useSignal(false);
  if (!wanted.value) {
    return (
      <>
        <Empty>Its stack is taken without stopping it.</Empty>
        <button type="button" onClick={() => (wanted.value = true)}>
          Stack now
        </button>
      </>
    );
  }
  return <StackView process={props.process} />;
}

export function StackView(props: { process: string }) {
  const { value, error, busy, again } = useLoaded(
    (stop) => getJson<Stacks>(`/api/sheaf/stacks/${encodeURIComponent(props.process)}`, stop),
    [props.process],
  );
  return (
    <div class="stacks">
      {error.value !== null && <Problem of={error.value} />}
      {value.value?.stacks.map((process) => (
        <>
          {process.words && <p class="hint">{process.words}</p>}
          {process.threads.map((thread) => (
            <details open={thread.frames.length > 0}>
              <summary>
                {thread.name || "thread"} {thread.os_thread ? <span class="dim">{thread.os_thread}</span> : null}
              </summary>
              {thread.words && <p class="dim">{thread.words}</p>}
              <ol class="frames">
                {thread.frames.map((frame) => (
                  <li>
                    <b>{frame.function}</b>{" "}
                    <span class="dim" title={frame.file}>
                      {frame.file.split("/").slice(-2).join("/")}
                      {frame.line ? `:${frame.line}` : ""}
                    </span>
                  </li>
                ))}
              </ol>
            </details>
          ))}
        </>
      ))}
      <button type="button" onClick={again} disabled={busy.value}>
        {busy.value ? "Asking…" : "Again"}
      </button>
    </div>
  );
}
