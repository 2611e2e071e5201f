// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { type ActorRow, getJson, type Rows, type TaskRow } from "../api";
import { Card, Command, Empty, Facts, Name, Order, Page, Problem, State, useLoaded } from "../parts";
import { Link, linkTo } from "../router";
import { StackCard } from "../stacks";
import { type Column, Table } from "../table";
import { JobNumber, Process, taskColumns, taskKeys, Why } from "./tasks";

/** Why an actor has died, without what its row says of it already. */
const cause = (row: ActorRow) => row.death.replace(/^the actor .*?\([0-9a-f]+\) (is dead: )?/s, "");

const columns: Column<ActorRow>[] = [
  {
    key: "actor_id",
    title: "Actor",
    cell: (row) => (
      <Link to={linkTo.actor(row.actor_id)} class="mono" title={row.actor_id}>
        {row.actor_id.slice(-12)}
      </Link>
    ),
  },
  { key: "class_name", title: "Class", sorts: true, cell: (row) => <Name of={row.class_name} /> },
  { key: "name", title: "Name", sorts: true, cell: (row) => row.name && <Link to={linkTo.actor(row.actor_id)}>{row.name}</Link> },
  { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
  { key: "process", title: "Process", cell: (row) => <Process of={row.process} pid={row.os_pid} /> },
  { key: "restarts", title: "Restarts", number: true, sorts: true, cell: (row) => row.restarts || "" },
  { key: "job", title: "Job", number: true, sorts: true, cell: (row) => <JobNumber of={row.job} /> },
  {
    key: "death",
    title: "Death",
    wide: true,
    cell: (row) => (
      <span class="dim" title={row.death}>
        {cause(row) || (row.detached ? "detached" : "")}
      </span>
    ),
  },
];

export function Actors() {
  return (
    <Page title="Actors">
      <Card class="flush">
        <Table<ActorRow>
          kind="actors"
          columns={columns}
          keys={["class_name", "state", "name", "actor_id", "job", "process", "name_space", "detached", "death"]}
          rowKey={(row) => row.actor_id}
          empty="There are no actors."
        />
      </Card>
    </Page>
  );
}

export function Actor(props: { id: string }) {
  const { value, error, again } = useLoaded(
    (stop) => getJson<Rows<ActorRow>>(`/api/sheaf/actors?filter=${encodeURIComponent(`actor_id=${props.id}`)}`, stop),
    [props.id],
    2000,
  );
  const row = value.value?.rows[0];
  return (
    <Page
      title={row ? row.name || row.class_name : "Actor"}
      aside={
        <>
          <Link to="/actors">All actors</Link>
          {row && row.state !== "DEAD" && (
            <Order button="Kill…" title={`Kill ${row.name || row.class_name}?`} leave="Let it live" confirm="Kill the actor" path={`/api/sheaf/actors/${row.actor_id}/kill`} then={again}>
              <p>Its process ends at once, for good, even where it may restart: calls that it has not finished fail with ActorDiedError.</p>
            </Order>
          )}
        </>
      }
    >
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && row === undefined && <Empty>There is no actor {props.id} that a node knows of.</Empty>}
      {row && (
        <>
          <div class="columns one-one">
            <Card title="Actor">
              <Facts
                of={[
                  ["State", <State of={row.state} />],
                  ["Class", row.class_name],
                  ["Name", row.name],
                  ["Namespace", row.name_space],
                  ["Id", <span class="mono break">{row.actor_id}</span>],
                  ["Process", row.process && <Process of={row.process} pid={row.os_pid} />],
                  ["Pid", row.os_pid],
                  ["Job", row.job && <JobNumber of={row.job} />],
                  ["Restarts", String(row.restarts)],
                  ["Detached", row.detached ? "yes: it outlives its job" : "no"],
                ]}
              />
            </Card>
            <Card title={row.state === "DEAD" ? "Death" : row.state === "ALIVE" ? "What it does" : "Why it has not started"}>
              {row.state === "DEAD" && <p class="why">{row.death || "It has ended."}</p>}
              {row.state === "ALIVE" && row.process && <StackCard process={row.process} />}
              {row.state !== "DEAD" && row.state !== "ALIVE" && <Why id={row.actor_id} />}
              <Command line={row.state === "ALIVE" ? `sheaf logs actor ${row.actor_id} --follow` : `sheaf why ${row.actor_id}`} />
            </Card>
          </div>
          <Card title="Its calls" class="flush">
            <Table<TaskRow>
              kind="tasks"
              columns={taskColumns}
              keys={taskKeys}
              rowKey={(task) => `${task.task_id}/${task.attempt}/${task.state}`}
              fixed={[`actor_id=${row.actor_id}`]}
              cli="--ended"
              empty="No calls of it are known."
              inner
            />
          </Card>
        </>
      )}
    </Page>
  );
}
