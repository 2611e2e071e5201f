// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { getJson, type NodeRow, type Rows, type WorkerRow } from "../api";
import { bytes, count, percent, resources as inWords } from "../format";
import { digest, type DigestNode, used } from "../live";
import { Ago, Card, Dialog, Empty, Facts, Meter, Order, Page, Problem, State, useLoaded } from "../parts";
import { go, Link, linkTo, query, withQuery } from "../router";
import { StackView } from "../stacks";
import { type Column, Table } from "../table";
import { SeriesCharts, useSeries } from "./metrics";
import { JobNumber } from "./tasks";

const kHeatFrom = 50; // Nodes: so many are a map, not a list.

const nowOf = (node: number): DigestNode | undefined => digest.value?.nodes.find((one) => one.node === node);

function Usage(props: { share: number; label: string; text: string; warns?: boolean }) {
  return (
    <span class="usage">
      <Meter label={props.label} parts={[{ share: props.share, tone: props.warns && props.share > 0.9 ? "warn" : "accent" }]} />
      <span class="dim">{props.text}</span>
    </span>
  );
}

const columns: Column<NodeRow>[] = [
  { key: "node", title: "Node", sorts: true, cell: (row) => <Link to={linkTo.node(row.node)}>Node {row.node}</Link> },
  { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
  { key: "host_name", title: "Host", sorts: true, cell: (row) => <span title={row.address}>{row.host_name}</span> },
  {
    key: "cpu_use",
    title: "Machine",
    cell: (row) => {
      const share = nowOf(row.node)?.host["cpu"];
      return typeof share === "number" ? <Usage share={share} label={`${percent(share)} of its processors are busy`} warns text={percent(share)} /> : "";
    },
  },
  {
    key: "cpu",
    title: "CPU lent",
    cell: (row) => {
      const total = row.total["CPU"] ?? 0;
      const lent = total - (row.available["CPU"] ?? 0);
      return total > 0 ? <Usage share={lent / total} label={`${lent} of ${total} CPU lent`} text={`${+lent.toFixed(2)} of ${total}`} /> : "";
    },
  },
  {
    key: "store",
    title: "Object store",
    cell: (row) => {
      const store = nowOf(row.node)?.store;
      if (!store || store.capacity_bytes === 0) return "";
      return (
        <Usage
          share={store.used_bytes / store.capacity_bytes}
          warns
          label={`${bytes(store.used_bytes)} of ${bytes(store.capacity_bytes)} used`}
          text={bytes(store.used_bytes)}
        />
      );
    },
  },
  { key: "waiting", title: "Waiting", number: true, cell: (row) => nowOf(row.node)?.waiting || "" },
  { key: "processes", title: "Processes", number: true, cell: (row) => nowOf(row.node)?.processes ?? "" },
  {
    key: "start_time_unix_s",
    title: "Started",
    sorts: true,
    cell: (row) => <Ago ms={row.start_time_unix_s ? row.start_time_unix_s * 1000 : null} />,
  },
];

export function Nodes() {
  const many = (digest.value?.nodes.length ?? 0) >= kHeatFrom;
  return (
    <Page title="Nodes">
      {many && <HeatMap nodes={digest.value!.nodes} late={digest.value!.late} />}
      <Card class="flush">
        <Table<NodeRow>
          kind="nodes"
          columns={columns}
          keys={["state", "node", "host_name", "address", "labels", "version"]}
          rowKey={(row) => String(row.node)}
          empty="There are no nodes."
        />
      </Card>
    </Page>
  );
}

/** A square a node, in the order of their numbers, as dark as its processors are lent. */
function HeatMap(props: { nodes: DigestNode[]; late: number[] }) {
  const late = new Set(props.late);
  return (
    <Card title={`${count(props.nodes.length)} nodes`} note="stronger: more of their CPUs are lent; outlined: no word of late">
      <div class="heat">
        {[...props.nodes].sort((a, b) => a.node - b.node).map((node) => {
          const share = used(node.resources["CPU"]);
          return (
            <Link
              to={linkTo.node(node.node)}
              class={`heat-${Math.round(share * 8)} ${late.has(node.node) ? "late" : ""}`}
              title={`Node ${node.node}: ${percent(share)} of its CPUs lent, ${count(node.waiting)} waiting`}
            >
              <span class="hidden">Node {node.node}</span>
            </Link>
          );
        })}
      </div>
    </Card>
  );
}

export function Node(props: { number: number }) {
  const node = props.number;
  const { value, error, again } = useLoaded(
    (stop) => getJson<Rows<NodeRow>>(`/api/sheaf/nodes?filter=node%3D${node}`, stop),
    [node],
    2000,
  );
  const row = value.value?.rows[0];
  return (
    <Page
      title={`Node ${node}`}
      aside={
        <>
          <Link to="/nodes">All nodes</Link>
          {row && row.state === "ALIVE" && (
            <Order button="Drain…" title={`Drain node ${node}?`} leave="Leave it" confirm={`Drain node ${node}`} path={`/api/sheaf/nodes/${node}/drain`} line={`sheaf drain ${node}`} then={again}>
              <p>It takes no new work from now on; what runs there goes on to its end. There is no way back: a drained node is stopped, and started anew.</p>
            </Order>
          )}
        </>
      }
    >
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && row === undefined && <Empty>There is no node {node}.</Empty>}
      {row && (
        <>
          <div class="columns one-one">
            <NodeCard row={row} />
            <NowCard node={node} />
          </div>
          <ProcessesCard node={node} />
          {row.state !== "DEAD" && <SeriesCharts node={node} />}
        </>
      )}
    </Page>
  );
}

function NodeCard(props: { row: NodeRow }) {
  const { row } = props;
  const labels = Object.entries(row.labels)
    .filter(([name]) => name !== "ray.io/node-id") // Its number, again.
    .map(([name, value]) => `${name}=${value}`);
  return (
    <Card title="Node">
      <Facts
        of={[
          ["State", <State of={row.state} />],
          ["Host", row.host_name],
          ["Address", <span class="mono">{row.address}</span>],
          ["Started", <Ago ms={row.start_time_unix_s ? row.start_time_unix_s * 1000 : null} />],
          ["Resources", inWords(row.total)],
          ["Available", inWords(Object.fromEntries(Object.keys(row.total).map((name) => [name, row.available[name] ?? 0])))],
          ["Labels", labels.join(", ")],
          ["Version", row.version],
          ["Logs", <Link to={`/logs?node=${row.node}`}>the files of this node</Link>],
        ]}
      />
    </Card>
  );
}

function NowCard(props: { node: number }) {
  const now = nowOf(props.node);
  if (now === undefined) {
    return (
      <Card title="Now">
        <Empty>Nothing is heard of it.</Empty>
      </Card>
    );
  }
  const workers = Object.entries(now.workers).map(([state, number]) => `${number} ${state.toLowerCase()}`);
  return (
    <Card title="Now">
      <Facts
        of={[
          ["Waiting", `${count(now.waiting)}${now.infeasible > 0 ? `, ${count(now.infeasible)} that no node can run` : ""}`],
          ["Workers", workers.join(", ") || "none"],
          ["Finished", count(now.finished)],
          ["Failed", <span class={now.failed > 0 ? "bad-text" : ""}>{count(now.failed)}</span>],
          ["Cancelled", count(now.cancelled)],
          ["Store", `${bytes(now.store.used_bytes)} of ${bytes(now.store.capacity_bytes)}, ${count(now.store.objects)} objects`],
          ["Held by readers", bytes(now.store.pinned_bytes)],
          ["Spilled", bytes(now.store.spilled_bytes)],
        ]}
      />
    </Card>
  );
}

function ProcessesCard(props: { node: number }) {
  const figures = useSeries(props.node, ["processes"], 2000).value.value?.processes ?? [];
  const of = new Map(figures.map((one) => [one.process, one]));
  const open = useSignal(false);
  const chosen = query.value.get("process");
  const show = (process: string) => {
    go(withQuery({ process }), { replaces: true });
    open.value = true;
  };
  const columns: Column<WorkerRow>[] = [
    { key: "process", title: "Process", sorts: true, cell: (row) => <span class="mono">{row.process}</span> },
    { key: "os_pid", title: "Pid", number: true, sorts: true, cell: (row) => row.os_pid },
    { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
    {
      key: "cpus",
      title: "CPUs",
      number: true,
      cell: (row) => of.get(row.process)?.cpus?.toFixed(2) ?? "",
    },
    {
      key: "memory",
      title: "Memory",
      number: true,
      cell: (row) => {
        const memory = of.get(row.process)?.memory_bytes;
        return memory ? bytes(memory) : "";
      },
    },
    { key: "job", title: "Job", number: true, sorts: true, cell: (row) => <JobNumber of={row.job} /> },
    { key: "running", title: "Runs", wide: true, cell: (row) => <span title={row.running}>{row.running}</span> },
    {
      key: "stack",
      title: "Stack",
      cell: (row) => (
        <button type="button" class="quiet" onClick={() => show(row.process)} aria-label={`Stack of ${row.process}`}>
          Show
        </button>
      ),
    },
  ];
  return (
    <Card title="Workers" class="flush">
      <Table<WorkerRow>
        kind="workers"
        columns={columns}
        keys={["state", "process", "os_pid", "job", "running"]}
        rowKey={(row) => row.process}
        fixed={[`node=${props.node}`]}
        empty="No workers run here."
        inner
      />
      <Dialog title={`Stack of ${chosen ?? ""}`} open={open}>
        {chosen && <StackView process={chosen} />}
      </Dialog>
    </Card>
  );
}
