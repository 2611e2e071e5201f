// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { type FunctionRow, getJson, getText, Refusal, type Rows, type TaskRow } from "../api";
import { brief, count, duration } from "../format";
import { Ago, Card, Choice, Command, Copy, Empty, Facts, Name, Page, Problem, State, useLoaded } from "../parts";
import { go, Link, linkTo, nodeOf, query, withQuery } from "../router";
import { word } from "../shell";
import { type Column, Table } from "../table";
import { TextView } from "../text_view";

export const taskKeys = ["name", "state", "task_id", "job", "actor_id", "type", "error_type"];

export function Process(props: { of: string | null; pid?: number | null }) {
  if (props.of === null) return <span class="dim">–</span>;
  return (
    <Link
      to={`/nodes/${nodeOf(props.of)}?process=${encodeURIComponent(props.of)}`}
      class="mono"
      title={props.pid ? `pid ${props.pid}` : undefined}
    >
      {props.of}
    </Link>
  );
}

export function JobNumber(props: { of: number | null }) {
  if (!props.of) return <span class="dim">–</span>;
  return <Link to={`/tasks?filter=${encodeURIComponent(`job=${props.of}`)}`}>{String(props.of)}</Link>;
}

const id: Column<TaskRow> = {
  key: "task_id",
  title: "Task",
  cell: (row) => (
    <Link to={linkTo.task(row.task_id)} class="mono" title={row.task_id}>
      {row.task_id.slice(-12)}
    </Link>
  ),
};

export const taskColumns: Column<TaskRow>[] = [
  id,
  { key: "name", title: "Function", cell: (row) => <Name of={row.name} /> },
  { key: "state", title: "State", cell: (row) => <State of={row.state} /> },
  { key: "job", title: "Job", number: true, cell: (row) => <JobNumber of={row.job} /> },
  { key: "worker", title: "Worker", cell: (row) => <Process of={row.worker} pid={row.os_pid} /> },
  { key: "run_ns", title: "Took", number: true, cell: (row) => (row.run_ns === null ? "" : duration(row.run_ns)) },
  { key: "end_time", title: "Ended", cell: (row) => (row.end_unix_ms ? <Ago ms={row.end_unix_ms} /> : "") },
  {
    key: "words",
    title: "Why",
    wide: true,
    cell: (row) => (
      <span class={row.error_type ? "bad-text" : "dim"} title={row.error || row.words}>
        {row.error_type ? `${row.error_type}: ${gist(row.error)}` : row.words}
      </span>
    ),
  },
];

/** The line of a traceback that names the error; else the last one. */
export function gist(text: string): string {
  const lines = text.trim().split("\n");
  return lines.findLast((line) => /^[\w.]+(?:Error|Exception|Exit|Interrupt|Warning)\b/.test(line)) ?? lines[lines.length - 1] ?? "";
}

const kShown = [
  ["true", "All"],
  ["false", "Live"],
  ["only", "Ended"],
] as const;
const kCli: Record<string, string> = { true: "--ended", only: "--ended=only" };

export function Tasks() {
  const ended = query.value.get("ended") ?? "true";
  return (
    <Page title="Tasks">
      <StateBar />
      <Card class="flush">
        <Table<TaskRow>
          kind="tasks"
          columns={taskColumns}
          keys={taskKeys}
          rowKey={(row) => `${row.task_id}/${row.attempt}/${row.state}`}
          parameters={{ ended }}
          cli={kCli[ended] ?? ""}
          empty="No calls: nothing runs, and nothing has ended that a node remembers."
          aside={
            <Choice
              label="Which tasks"
              value={ended}
              options={kShown}
              onChange={(value) => go(withQuery({ after: null, ended: value === "true" ? null : value }))}
            />
          }
        />
      </Card>
    </Page>
  );
}

const kStates = [
  ["WAITING_FOR_ARGUMENTS", "wait for arguments", "warn-soft"],
  ["WAITING_FOR_LEASE", "wait for a place", "warn"],
  ["PUSHED", "sent to a worker", "accent-soft"],
  ["RUNNING", "run", "accent"],
  ["FINISHED", "finished", "good"],
  ["FAILED", "failed", "bad"],
  ["CANCELLED", "cancelled", "plain"],
] as const;

/** How many calls are in each state: exact, and counted where they are. */
function StateBar() {
  const { value, error } = useLoaded(
    (stop) => getJson<Rows<FunctionRow>>("/api/sheaf/functions?limit=1&group=state", stop),
    [],
    2000,
  );
  if (error.value !== null) return <Problem of={error.value} />;
  const groups = value.value?.groups ?? [];
  const of = (state: string) => groups.find((group) => group.value === state)?.rows ?? 0;
  return (
    <div class="states">
      {kStates.map(([state, text, tone]) => (
        <Link
          class={`count ${of(state) > 0 ? "" : "none"}`}
          to={`/tasks?filter=${encodeURIComponent(`state=${state}`)}`}
          title={`${count(of(state))} ${text}`}
        >
          <i class={`swatch ${tone}`} />
          <b>{value.value === null ? "–" : brief(of(state))}</b>
          <span>{text}</span>
        </Link>
      ))}
    </div>
  );
}

export function Task(props: { id: string }) {
  const { value, error } = useLoaded(
    (stop) =>
      getJson<Rows<TaskRow>>(`/api/sheaf/tasks?limit=100&filter=${encodeURIComponent(`task_id=${props.id}`)}`, stop),
    [props.id],
    2000,
  );
  const rows = [...(value.value?.rows ?? [])].sort((a, b) => a.attempt - b.attempt);
  const last = rows[rows.length - 1];
  return (
    <Page title={last ? last.name || "Task" : "Task"} aside={<Link to="/tasks">All tasks</Link>}>
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && last === undefined && (
        <Empty>
          There is no call {props.id}, or none that a node remembers: the last 400,000 that ended on each are kept.
        </Empty>
      )}
      {last && <TaskDetails id={props.id} rows={rows} last={last} />}
    </Page>
  );
}

function TaskDetails(props: { id: string; rows: TaskRow[]; last: TaskRow }) {
  const { id: task, rows, last } = props;
  const ended = last.end_unix_ms !== null;
  return (
    <>
      <div class="columns one-one">
        <Card title="Call">
          <Facts
            of={[
              ["State", <State of={last.state} />],
              ["Function", <Link to={linkTo.fn(last.name)}>{last.name || "(no name)"}</Link>],
              ["Kind", last.type.toLowerCase().replaceAll("_", " ")],
              ["Id", <span class="mono break">{task}</span>],
              ["Job", last.job && <JobNumber of={last.job} />],
              ["Actor", last.actor_id && <Link to={linkTo.actor(last.actor_id)} class="mono break">{last.actor_id}</Link>],
              ["Owner", last.owner && <Process of={last.owner} />],
              ["Worker", last.worker && <Process of={last.worker} pid={last.os_pid} />],
              ["Submitted", last.created_unix_ms && <Ago ms={last.created_unix_ms} />],
              ["Stands for", last.weight && last.weight > 1 ? `${count(last.weight)} calls, of which one is kept` : ""],
            ]}
          />
        </Card>
        <Card title={ended ? "Outcome" : "Why it has not ended"}>
          {ended ? <Outcome of={last} /> : <Why id={task} />}
          <Command line={ended ? `sheaf list tasks --ended --filter ${word(`task_id=${task}`)}` : `sheaf why ${word(task)}`} />
        </Card>
      </div>
      <Card title="Attempts" class="flush">
        <div class="scroll" tabIndex={0} role="region" aria-label="Attempts">
          <table>
            <thead>
              <tr>
                <th scope="col" class="num">Attempt</th>
                <th scope="col">State</th>
                <th scope="col">Worker</th>
                <th scope="col">Began</th>
                <th scope="col" class="num">Took</th>
                <th scope="col" class="wide">Error</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr>
                  <td class="num">{row.attempt}</td>
                  <td><State of={row.state} /></td>
                  <td><Process of={row.worker} pid={row.os_pid} /></td>
                  <td><Ago ms={row.begin_unix_ms} /></td>
                  <td class="num">{row.run_ns === null ? "" : duration(row.run_ns)}</td>
                  <td class="wide">{row.error_type && `${row.error_type}: ${gist(row.error)}`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
      <Inspect id={task} attempt={last.attempt} runs={last.state === "RUNNING"} worker={last.worker} />
    </>
  );
}

function Outcome(props: { of: TaskRow }) {
  const row = props.of;
  return (
    <>
      <p>
        <State of={row.state} /> {row.run_ns !== null && `after ${duration(row.run_ns)}, `}
        <Ago ms={row.end_unix_ms} />
      </p>
      {row.error && <pre class="trace">{row.error}</pre>}
    </>
  );
}

export function Why(props: { id: string }) {
  const { value, error } = useLoaded(
    (stop) => getJson<{ why: string }>(`/api/sheaf/why/${encodeURIComponent(props.id)}`, stop),
    [props.id],
    2000,
  );
  if (error.value instanceof Refusal && error.value.status === 404) return <Empty>{error.value.message}</Empty>;
  if (error.value !== null) return <Problem of={error.value} />;
  return <p class="why">{value.value?.why ?? "…"}</p>;
}

/** What a call does now, and what its last attempt has printed. */
function Inspect(props: { id: string; attempt: number; runs: boolean; worker: string | null }) {
  const what = useSignal<"stack" | "out" | "err" | "">("");
  const shown = what.value;
  const text = useLoaded(
    async (stop) => {
      if (shown === "") return "";
      const task = `task_id=${encodeURIComponent(props.id)}&attempt_number=${props.attempt}`;
      if (shown === "stack") return getText(`/task/traceback?${task}`, stop);
      return getText(`/api/v0/logs/file?${task}&lines=1000&suffix=${shown}`, stop);
    },
    [shown, props.attempt],
  );
  if (props.worker === null) return null;
  return (
    <Card
      title="Look into it"
      note={
        <Choice
          label="What to show"
          value={shown}
          options={[...(props.runs ? ([["stack", "Stack now"]] as const) : []), ["out", "Output"], ["err", "Errors"]]}
          onChange={(value) => (what.value = value)}
        />
      }
    >
      {text.error.value !== null && <Problem of={text.error.value} />}
      {shown === "" && <Empty>{props.runs ? "Its stack, taken now without stopping it, or what" : "What"} its worker has printed.</Empty>}
      {shown !== "" && text.value.value !== null && (
        <>
          <TextView text={text.value.value} label={shown === "stack" ? "Stack" : "Log"} />
          <Copy label="Copy" text={() => text.value.value ?? ""} />
        </>
      )}
    </Card>
  );
}
