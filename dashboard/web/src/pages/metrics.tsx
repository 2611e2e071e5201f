// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What machines did in the last hour, without Prometheus.
import { useSignal } from "@preact/signals";
import { getJson, nodeId } from "../api";
import { now } from "../clock";
import { Chart, Legend, type Line } from "../chart";
import { colorAt } from "../colors";
import { brief, bytes, percent } from "../format";
import { connection, digest } from "../live";
import { Card, Choice, Command, Empty, Page, Problem, useLoaded } from "../parts";
import { go, query, withQuery } from "../router";

interface Series {
  series: { node_id: string; name: string; first_ms: number; period_ms: number; values: (number | null)[] }[];
  processes: { process: string; pid: number; cpus: number | null; memory_bytes: number }[];
  truncated: boolean;
  late_nodes: string[];
}

const rate = (value: number) => `${bytes(value)}/s`;
// What goes together in one chart; of several nodes the first alone, but for what goes two ways.
const kCharts: { title: string; names: [string, string][]; unit: (value: number) => string; share?: boolean; binary?: boolean }[] = [
  { title: "Processors", names: [["cpu", "busy"], ["io_wait", "waits for disks"], ["steal", "stolen"]], unit: percent, share: true },
  { title: "Memory", names: [["memory_used_bytes", "used"], ["memory_total_bytes", "there is"]], unit: bytes, binary: true },
  { title: "Sheaf's processes: processors", names: [["processes_cpus", "used"]], unit: brief },
  { title: "Sheaf's processes: memory", names: [["processes_memory_bytes", "resident"]], unit: bytes, binary: true },
  { title: "Disks", names: [["disk_read_bytes_per_second", "read"], ["disk_written_bytes_per_second", "written"]], unit: rate, binary: true },
  { title: "Network", names: [["received_bytes_per_second", "received"], ["sent_bytes_per_second", "sent"]], unit: rate, binary: true },
  { title: "Waiting for (part of the last 10 s)", names: [["cpu_stall", "processors"], ["memory_stall", "memory"], ["io_stall", "disks"]], unit: percent },
  { title: "GPUs", names: [["gpu", "busy"]], unit: percent, share: true },
];
const kNames = kCharts.flatMap((chart) => chart.names.map(([name]) => name));

/** Of one node, or with 0 of all. `from`: seconds ago; 0: as it is now. */
export function useSeries(node: number, names: readonly string[], everyMs: number, ago = 10) {
  return useLoaded(
    (stop) => {
      const parameters = new URLSearchParams({ name: names.join(","), from: String(Math.round(now() - ago * 1000)) });
      if (node > 0) parameters.set("node", nodeId(node));
      return getJson<Series>(`/api/sheaf/series?${parameters}`, stop);
    },
    [node, names.join(), ago],
    everyMs,
  );
}

const kWindows = [
  ["300", "5 min"],
  ["900", "15 min"],
  ["3600", "1 h"],
] as const;

export function SeriesCharts(props: { node: number }) {
  const ago = useSignal<"300" | "900" | "3600">("900");
  const { value, error } = useSeries(props.node, kNames, 4000, Number(ago.value));
  const all = value.value?.series ?? [];
  const nodes = new Set(all.map((one) => one.node_id)).size;
  return (
    <>
      <div class="bar">
        <Choice label="How far back" value={ago.value} options={kWindows} onChange={(next) => (ago.value = next)} />
      </div>
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && all.length === 0 && <Empty>No figures yet: the first come after some seconds.</Empty>}
      <div class="charts">
        {kCharts.map((chart) => {
          const { time, lines } = linesOf(all, nodes > 1 && chart.unit !== rate ? chart.names.slice(0, 1) : chart.names, nodes > 1);
          if (lines.length === 0) return null;
          const highest = Math.max(...lines.flatMap((line) => line.values.map((one) => one ?? 0)));
          return (
            <Card title={chart.title}>
              <Chart
                time={time}
                lines={lines}
                label={`${chart.title}: ${lines.map((line) => line.label).join(", ")}`}
                unit={chart.unit}
                height={150}
                binary={chart.binary}
                max={chart.share ? Math.max(1, highest) : undefined}
              />
              <Legend
                lines={lines.map((line) => {
                  const last = line.values.findLast((one) => one !== null);
                  return { ...line, value: last === undefined || last === null ? "" : chart.unit(last) };
                })}
              />
            </Card>
          );
        })}
      </div>
    </>
  );
}

/** The times of all nodes on one axis; what is not known has no line. */
function linesOf(all: Series["series"], names: [string, string][], several: boolean): { time: number[]; lines: Line[] } {
  const rows = names.flatMap(([name, label]) =>
    all
      .filter((one) => one.name === name && one.values.some((value) => value !== null))
      .sort((a, b) => a.node_id.localeCompare(b.node_id))
      .map((one) => ({ ...one, label: several ? `node ${parseInt(one.node_id.slice(-8), 16)}${names.length > 1 ? `, ${label}` : ""}` : label })),
  );
  if (rows.length === 0) return { time: [], lines: [] };
  const step = Math.min(...rows.map((row) => row.period_ms));
  const first = Math.min(...rows.map((row) => row.first_ms));
  const end = Math.max(...rows.map((row) => row.first_ms + row.values.length * row.period_ms));
  const time = Array.from({ length: Math.round((end - first) / step) }, (_, i) => (first + i * step) / 1000);
  const lines = rows.map((row, place) => ({
    label: row.label,
    color: colorAt(place),
    values: time.map((at) => row.values[Math.round((at * 1000 - row.first_ms) / row.period_ms)] ?? null),
  }));
  return { time, lines };
}

const kMostNodes = 12; // Lines that an eye can tell apart.

export function Metrics() {
  // How many nodes there are says of how many is asked.
  if (digest.value === null && connection.value !== "absent") {
    return (
      <Page title="Metrics">
        <div class="skeleton" aria-label="Loading" />
      </Page>
    );
  }
  const nodes = digest.value?.nodes.map((node) => node.node) ?? [];
  const chosen = query.value.get("node") ?? "";
  const many = nodes.length > kMostNodes;
  const node = Number(chosen) || (many ? nodes[0]! : 0);
  return (
    <Page
      title="Metrics"
      aside={
        <label class="inline">
          Node{" "}
          <select value={String(node)} onChange={(event) => go(withQuery({ node: event.currentTarget.value === "0" ? null : event.currentTarget.value }))}>
            {!many && <option value="0">all</option>}
            {nodes.map((one) => (
              <option value={String(one)}>{one}</option>
            ))}
          </select>
        </label>
      }
    >
      <SeriesCharts node={node} />
      <Card title="For Prometheus">
        <p class="dim">Each node serves its metrics; the dashboard tells Prometheus where they are.</p>
        <Command line={`http_sd_configs: [{url: "${location.origin}/api/prometheus/sd"}]`} />
      </Card>
    </Page>
  );
}
