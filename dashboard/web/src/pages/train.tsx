// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Training runs of sheaf.train: what they have reached, on which workers, and what happened to them.
import { getJson, type TrainRow, type TrainRun } from "../api";
import { Chart } from "../chart";
import { colorAt } from "../colors";
import { brief, count, span } from "../format";
import { Ago, At, Card, Command, Empty, Facts, Page, Problem, State, useLoaded } from "../parts";
import { Link, linkTo, nodeOf } from "../router";
import { word } from "../shell";
import { type Column, Table } from "../table";
import { JobNumber, Process } from "./tasks";

const columns: Column<TrainRow>[] = [
  { key: "run_id", title: "Run", cell: (row) => <Link to={linkTo.train(row.run_id)} class="mono">{row.run_id}</Link> },
  { key: "name", title: "Name", sorts: true, cell: (row) => <span title={row.path}>{row.name}</span> },
  { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
  { key: "job", title: "Job", number: true, sorts: true, cell: (row) => <JobNumber of={row.job} /> },
  { key: "workers", title: "Workers", number: true, sorts: true, cell: (row) => count(row.workers) },
  { key: "attempts", title: "Formed", number: true, sorts: true, cell: (row) => count(row.attempts) },
  { key: "steps", title: "Steps", number: true, sorts: true, cell: (row) => count(row.steps) },
  { key: "start_time_unix_s", title: "Started", sorts: true, cell: (row) => <Ago ms={ms(row.start_time_unix_s)} /> },
  {
    key: "metrics",
    title: "Last metrics",
    wide: true,
    cell: (row) => (row.message ? <span class="bad-text" title={row.message}>{row.message}</span> : <span class="dim">{inWords(row.metrics)}</span>),
  },
];

function ms(unixS: number | null): number | null {
  return unixS === null ? null : unixS * 1000;
}

function inWords(metrics: TrainRow["metrics"]): string {
  return Object.entries(metrics)
    .map(([name, value]) => `${name} ${typeof value === "number" ? figure(value) : String(value)}`)
    .join(", ");
}

/** Four digits, however large or small. */
function figure(value: number): string {
  return Math.abs(value) >= 1e4 ? brief(value) : String(Number(value.toPrecision(4)));
}

export function TrainRuns() {
  return (
    <Page title="Train">
      <Card class="flush" note="the last 1,000">
        <Table<TrainRow>
          kind="train_runs"
          columns={columns}
          keys={["state", "name", "job", "run_id", "path", "driver", "message", "metrics"]}
          rowKey={(row) => row.run_id}
          empty="Nothing has been trained with sheaf.train yet."
        />
      </Card>
    </Page>
  );
}

export function OneTrainRun(props: { id: string }) {
  const { value, error } = useLoaded(
    (stop) => getJson<TrainRun>(`/api/sheaf/train_runs/${encodeURIComponent(props.id)}`, stop),
    [props.id],
    2000,
  );
  const run = value.value;
  const row = run?.rows[0];
  return (
    <Page title={row ? row.name || "Training run" : "Training run"} aside={<Link to="/train">All runs</Link>}>
      {error.value !== null && <Problem of={error.value} />}
      {run && row && (
        <>
          <div class="columns one-one">
            <RunCard row={row} />
            <Card title={row.message ? "How it ended" : "What it has reached"}>
              {row.message && <p class="why">{row.message}</p>}
              <Facts
                of={[
                  ["Steps", count(row.steps)],
                  ...Object.entries(row.metrics).map(([name, one]): [string, string] => [name, typeof one === "number" ? figure(one) : String(one)]),
                  ["Reported", row.reported_unix_ms && <Ago ms={row.reported_unix_ms} />],
                  ["Checkpoint", row.checkpoint && <span class="mono break">{row.checkpoint}</span>],
                  ["Of step", row.checkpoint_step && count(row.checkpoint_step)],
                ]}
              />
              <Command line={`sheaf list train-runs --filter ${word(`run_id=${row.run_id}`)} --json`} />
            </Card>
          </div>
          <MetricCharts of={run.history.series} />
          <Ranks of={run} ended={row.end_time_unix_s !== null || row.state === "ABORTED"} />
          <div class="columns one-one">
            <Attempts of={run.history.attempts ?? []} />
            <Events of={run.history.events ?? []} />
          </div>
        </>
      )}
    </Page>
  );
}

function RunCard(props: { row: TrainRow }) {
  const { row } = props;
  const took = row.end_time_unix_s !== null && row.start_time_unix_s !== null ? row.end_time_unix_s - row.start_time_unix_s : null;
  return (
    <Card title="Run">
      <Facts
        of={[
          ["State", <State of={row.state} />],
          ["Id", <span class="mono break">{row.run_id}</span>],
          ["Job", row.job && <JobNumber of={row.job} />],
          ["Driver", row.driver && <Process of={row.driver} />],
          ["Workers", count(row.workers)],
          ["Formed", row.attempts === 1 ? "once" : `${count(row.attempts)} times`],
          ["Started", <Ago ms={ms(row.start_time_unix_s)} />],
          ["Ended", row.end_time_unix_s && <Ago ms={ms(row.end_time_unix_s)} />],
          ["Took", took === null ? "" : took < 1 ? "less than 1 s" : span(took)],
          ["Folder", <span class="mono break">{row.path}</span>],
        ]}
      />
    </Card>
  );
}

function MetricCharts(props: { of: TrainRun["history"]["series"] }) {
  const series = props.of;
  const metrics = Object.entries(series?.metrics ?? {});
  if (!series || series.steps.length < 2 || metrics.length === 0) return null;
  const time = series.time_ms.map((at) => at / 1000);
  return (
    <div class="charts">
      {metrics.map(([name, values], place) => (
        <Card title={name} note={`step ${count(series.steps[0]!)} to ${count(series.steps[series.steps.length - 1]!)}`}>
          <Chart time={time} lines={[{ label: name, color: colorAt(place), values }]} label={name} unit={figure} height={150} />
        </Card>
      ))}
    </div>
  );
}

/** Where each rank runs, and what leads to its stack, its calls and what it prints. */
function Ranks(props: { of: TrainRun; ended: boolean }) {
  const { ranks = [], left_out: leftOut = 0 } = props.of.group;
  return (
    <Card title="Ranks" note={props.ended ? "of the last group" : "of the group that trains now"} class="flush">
      {ranks.length === 0 && <Empty>No group of workers has been formed yet.</Empty>}
      {ranks.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Ranks">
          <table>
            <thead>
              <tr>
                <th scope="col" class="num">Rank</th>
                <th scope="col">Node</th>
                <th scope="col">Worker</th>
                <th scope="col" class="num">Pid</th>
                <th scope="col">Stack and calls</th>
                <th scope="col">Output</th>
              </tr>
            </thead>
            <tbody>
              {ranks.map((rank) => (
                <tr key={rank.rank}>
                  <td class="num">{rank.rank}</td>
                  <td><Link to={linkTo.node(nodeOf(rank.process))}>node {nodeOf(rank.process)}</Link></td>
                  <td><Process of={rank.process} pid={rank.pid} /></td>
                  <td class="num">{rank.pid}</td>
                  <td><Link to={linkTo.actor(rank.actor_id)} class="mono" title={rank.actor_id}>{rank.actor_id.slice(-12)}</Link></td>
                  <td><Link to={linkTo.output(rank.process)}>log</Link></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {leftOut > 0 && <p class="hint">And {count(leftOut)} more ranks, which the record leaves out.</p>}
    </Card>
  );
}

function Attempts(props: { of: NonNullable<TrainRun["history"]["attempts"]> }) {
  return (
    <Card title="How often the group was formed" class="flush">
      {props.of.length === 0 && <Empty>Not yet.</Empty>}
      {props.of.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Groups">
          <table>
            <thead>
              <tr>
                <th scope="col">At</th>
                <th scope="col" class="num">Workers</th>
                <th scope="col" class="num">From step</th>
                <th scope="col" class="wide">Why</th>
              </tr>
            </thead>
            <tbody>
              {props.of.map((one) => (
                <tr key={one.attempt}>
                  <td><At ms={one.start_ms} /></td>
                  <td class="num" title={`${one.kept} kept`}>{one.workers}</td>
                  <td class="num">{count(one.from_step)}</td>
                  <td class="wide"><span title={one.why}>{one.why || "it began"}</span></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Events(props: { of: NonNullable<TrainRun["history"]["events"]> }) {
  return (
    <Card title="What happened" note="newest first">
      {props.of.length === 0 && <Empty>Nothing yet.</Empty>}
      <ul class="rows events" tabIndex={0} aria-label="What happened">
        {[...props.of].reverse().map((one) => (
          <li>
            <div class="line">
              <At ms={one.time_ms} />
              <span>{one.text}</span>
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}
