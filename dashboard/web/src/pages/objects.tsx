// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { getJson, type GroupRow, type ObjectRow, type Rows } from "../api";
import { bytes, count, resources as inWords, span } from "../format";
import { Card, Choice, Empty, Page, Problem, State, useLoaded } from "../parts";
import { go, Link, linkTo, query, withQuery } from "../router";
import { type Column, Table } from "../table";
import { Process } from "./tasks";

const columns: Column<ObjectRow>[] = [
  { key: "object_id", title: "Object", cell: (row) => <span class="mono" title={row.object_id}>{row.object_id.slice(-12)}</span> },
  { key: "size_bytes", title: "Size", number: true, sorts: true, cell: (row) => bytes(row.size_bytes) },
  { key: "where", title: "Where", sorts: true, cell: (row) => <State of={row.where} /> },
  { key: "owner", title: "Owner", sorts: true, cell: (row) => <Process of={row.owner} /> },
  { key: "local_refs", title: "References", number: true, sorts: true, cell: (row) => row.local_refs },
  { key: "task_refs", title: "Calls that want it", number: true, sorts: true, cell: (row) => row.task_refs || "" },
  { key: "borrowing_nodes", title: "Nodes that hold it", number: true, sorts: true, cell: (row) => row.borrowing_nodes || "" },
  {
    key: "age_s",
    title: "Age",
    number: true,
    sorts: true,
    cell: (row) => <span class={row.may_leak ? "warn-text" : ""}>{row.age_s === null ? "new" : span(Math.max(1, row.age_s))}</span>,
  },
];

// An object that nothing needs but references of its owner, for long.
const kForgotten = "may_leak=true";
const kShown = [
  ["all", "All"],
  ["forgotten", "Perhaps forgotten"],
] as const;

const kBy = [
  ["where", "place"],
  ["owner", "owner"],
] as const;

export function Objects() {
  const by = useSignal<"where" | "owner">("where");
  const filters = query.value.getAll("filter");
  const others = filters.filter((one) => one !== kForgotten);
  return (
    <Page title="Objects">
      <Card title="How much" note={<Choice label="Counted by" value={by.value} options={kBy} onChange={(next) => (by.value = next)} />}>
        <Sums by={by.value} />
      </Card>
      <Card class="flush">
        <Table<ObjectRow>
          kind="objects"
          columns={columns}
          keys={["where", "owner", "object_id", "size_bytes", "local_refs", "task_refs", "borrowing_nodes", "may_leak"]}
          rowKey={(row) => `${row.object_id}/${row.owner}`}
          order="-size_bytes"
          empty="There are no objects."
          aside={
            <Choice
              label="Which objects"
              value={others.length < filters.length ? "forgotten" : "all"}
              options={kShown}
              onChange={(value) => go(withQuery({ after: null, filter: value === "all" ? others : [...others, kForgotten] }))}
            />
          }
        />
      </Card>
    </Page>
  );
}

function Sums(props: { by: string }) {
  const { value, error } = useLoaded(
    (stop) => getJson<Rows<ObjectRow>>(`/api/sheaf/objects?limit=1&group=${props.by}`, stop),
    [props.by],
    4000,
  );
  const groups = value.value?.groups ?? [];
  const most = Math.max(1, ...groups.map((group) => group.size_bytes));
  return (
    <>
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && groups.length === 0 && <Empty>There are no objects.</Empty>}
      {groups.length > 0 && (
        <table class="compact sums">
          <tbody>
            {groups.slice(0, 12).map((group) => (
              <tr>
                <th scope="row">{props.by === "owner" ? <Process of={group.value === null ? null : String(group.value)} /> : <State of={String(group.value)} />}</th>
                <td class="num">{count(group.rows)}</td>
                <td class="num">{bytes(group.size_bytes)}</td>
                <td class="wide">
                  <i class="length" style={{ width: `${(group.size_bytes / most) * 100}%` }} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

const groupColumns: Column<GroupRow>[] = [
  { key: "group_id", title: "Group", cell: (row) => <span class="mono" title={row.group_id}>{row.group_id.slice(-12)}</span> },
  { key: "name", title: "Name", sorts: true, cell: (row) => row.name },
  { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
  { key: "placement", title: "Placement", sorts: true, cell: (row) => row.placement.toLowerCase().replaceAll("_", " ") },
  {
    key: "bundles",
    title: "Bundles",
    wide: true,
    cell: (row) => (
      <span class="bundles">
        {row.bundles.map((bundle, i) => (
          <span class="chip">
            {inWords(bundle)}
            {row.bundle_nodes[i] ? <Link to={linkTo.node(row.bundle_nodes[i]!)}>node {row.bundle_nodes[i]}</Link> : <em>waits</em>}
          </span>
        ))}
      </span>
    ),
  },
  { key: "detached", title: "Detached", cell: (row) => (row.detached ? "yes" : "") },
];

export function Groups() {
  return (
    <Page title="Placement groups">
      <Card class="flush">
        <Table<GroupRow>
          kind="groups"
          columns={groupColumns}
          keys={["state", "name", "group_id", "placement", "detached"]}
          rowKey={(row) => row.group_id}
          empty="There are no placement groups."
        />
      </Card>
    </Page>
  );
}
