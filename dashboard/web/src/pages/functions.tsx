// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { type FunctionRow, getJson, type Rows, type TaskRow } from "../api";
import { brief, count, duration } from "../format";
import { FlameCard } from "../flame";
import { digest, sum } from "../live";
import { Card, Empty, Facts, Name, Page, Problem, useLoaded } from "../parts";
import { Link, linkTo } from "../router";
import { type Column, Table } from "../table";
import { JobNumber, taskColumns, taskKeys } from "./tasks";

const rateOf = (row: FunctionRow) =>
  digest.value?.functions.find((one) => one.name === row.name && one.type === row.type && one.job === (row.job ?? 0))?.per_second;

const number = (key: keyof FunctionRow, title: string): Column<FunctionRow> => ({
  key,
  title,
  number: true,
  sorts: true,
  cell: (row) => {
    const value = row[key] as number;
    return value > 0 ? <span title={count(value)}>{brief(value)}</span> : <span class="dim">0</span>;
  },
});

const columns: Column<FunctionRow>[] = [
  { key: "name", title: "Function", wide: true, sorts: true, cell: (row) => <Link to={linkTo.fn(row.name)}><Name of={row.name} /></Link> },
  { key: "job", title: "Job", number: true, sorts: true, cell: (row) => <JobNumber of={row.job} /> },
  {
    key: "rate",
    title: "a second",
    number: true,
    cell: (row) => {
      const rate = rateOf(row);
      return rate ? brief(rate) : "";
    },
  },
  number("waiting", "Waiting"),
  number("running", "Running"),
  number("finished", "Finished"),
  { ...number("failed", "Failed"), cell: (row) => <span class={row.failed > 0 ? "bad-text" : "dim"} title={count(row.failed)}>{brief(row.failed)}</span> },
  { key: "mean_ns", title: "Mean", number: true, sorts: true, cell: (row) => (row.timed > 0 ? duration(row.mean_ns) : "") },
  { key: "longest_ns", title: "Longest", number: true, sorts: true, cell: (row) => (row.timed > 0 ? duration(row.longest_ns) : "") },
  { key: "run_time", title: "How long", cell: (row) => <Histogram of={row.run_time} height={18} /> },
];

export function Functions() {
  return (
    <Page title="Functions">
      <Card class="flush">
        <Table<FunctionRow>
          kind="functions"
          columns={columns}
          keys={["name", "type", "job", "failed", "running", "waiting", "finished"]}
          rowKey={(row) => `${row.job}/${row.type}/${row.name}`}
          order="-finished"
          empty="No function has been called yet."
        />
      </Card>
      <FlameCard fn="" />
    </Page>
  );
}

const kLabelWidth = 30; // What the last label is wider than its bar.
const edge = (bucket: number) => duration(2 ** (bucket + 10));

/** Calls by how long they took: each bar is twice the time of the one before it. */
function Histogram(props: { of: number[]; height: number; labels?: boolean }) {
  const first = props.of.findIndex((one) => one > 0);
  if (first < 0) return null;
  const last = props.of.findLastIndex((one) => one > 0);
  const begin = Math.max(0, first - 1);
  const shown = props.of.slice(begin, last + 2);
  const most = Math.max(...shown);
  const step = props.labels ? Math.max(28, Math.min(64, 460 / shown.length)) : 5;
  const words = shown.map((one, i) => `up to ${edge(begin + i)}: ${count(one)}`).filter((_, i) => shown[i]! > 0);
  return (
    <svg
      class="histogram"
      width={shown.length * step + (props.labels ? kLabelWidth : 0)}
      height={props.height + (props.labels ? 16 : 0)}
      role="img"
      aria-label={`Calls by time: ${words.join("; ")}`}
    >
      {shown.map((one, i) => {
        const height = one > 0 ? Math.max(1.5, (one / most) * props.height) : 0;
        return (
          <rect x={i * step} y={props.height - height} width={step - 1} height={height} rx={props.labels ? 2 : 0}>
            <title>{`up to ${edge(begin + i)}: ${count(one)}`}</title>
          </rect>
        );
      })}
      {props.labels &&
        shown.map((_, i) =>
          i % Math.ceil(72 / step) === 0 ? (
            <text x={i * step} y={props.height + 13}>
              {edge(begin + i)}
            </text>
          ) : null,
        )}
    </svg>
  );
}

export function Function(props: { name: string }) {
  const { value, error } = useLoaded(
    (stop) => getJson<Rows<FunctionRow>>(`/api/sheaf/functions?filter=${encodeURIComponent(`name=${props.name}`)}`, stop),
    [props.name],
    2000,
  );
  const rows = value.value?.rows ?? [];
  const of = (key: keyof FunctionRow) => sum(rows, (row) => row[key] as number);
  const timed = of("timed");
  const times = rows.reduce<number[]>((all, row) => row.run_time.map((one, i) => one + (all[i] ?? 0)), []);
  return (
    <Page title={props.name || "(no name)"} aside={<Link to="/functions">All functions</Link>}>
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && rows.length === 0 && <Empty>No function of this name has been called.</Empty>}
      {rows.length > 0 && (
        <div class="columns one-one">
          <Card title="Calls">
            <Facts
              of={[
                ["Waiting", count(of("waiting"))],
                ["Running", count(of("running"))],
                ["Finished", count(of("finished"))],
                ["Failed", <span class={of("failed") > 0 ? "bad-text" : ""}>{count(of("failed"))}</span>],
                ["Cancelled", count(of("cancelled"))],
                ["Mean", timed > 0 ? duration(sum(rows, (row) => row.mean_ns * row.timed) / timed) : ""],
                ["Longest", timed > 0 ? duration(Math.max(...rows.map((row) => row.longest_ns))) : ""],
                ["Jobs", rows.map((row) => <JobNumber of={row.job} />)],
              ]}
            />
          </Card>
          <Card title="How long they took" note={`${count(timed)} were timed`}>
            {timed > 0 ? <div class="scroll" tabIndex={0} role="region" aria-label="Calls by time"><Histogram of={times} height={110} labels /></div> : <Empty>None has ended yet.</Empty>}
          </Card>
        </div>
      )}
      <FlameCard fn={props.name} />
      <Card title="Failed calls" note="the last that nodes remember" class="flush">
        <Table<TaskRow>
          kind="tasks"
          columns={taskColumns}
          keys={taskKeys}
          rowKey={(row) => `${row.task_id}/${row.attempt}`}
          fixed={[`name=${props.name}`, "state=FAILED"]}
          parameters={{ ended: "only" }}
          cli="--ended=only"
          empty="None."
          inner
        />
      </Card>
    </Page>
  );
}
