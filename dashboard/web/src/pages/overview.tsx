// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Amounts, type EventRow, getJson } from "../api";
import { Chart, Legend } from "../chart";
import { colorOf, css } from "../colors";
import { brief, bytes, count, percent, resources as inWords } from "../format";
import {
  addEvents,
  connection,
  type Digest,
  digest,
  type DigestNode,
  events,
  History,
  history,
  historyLength,
  resources,
  sum,
  used,
} from "../live";
import { At, Card, Empty, Meter, Name, Page, Problem, State, useLoaded } from "../parts";
import { Link, linkTo } from "../router";

interface Demand {
  shapes: { resources: Amounts; count: number; words: string; infeasible: boolean }[];
  gangs: { placement_group_id: string; strategy: string; infeasible: boolean; bundles: Amounts[] }[];
}

export function Overview() {
  return (
    <Page title="Overview" aside={digest.value && <Link to="/nodes">{nodesInWords(digest.value)}</Link>}>
      <div class="tiles">
        <Tiles />
      </div>
      <div class="columns two-one">
        <CallsCard />
        <FunctionsCard />
      </div>
      <div class="columns one-one">
        <WaitingCard />
        <EventsCard />
      </div>
    </Page>
  );
}

function nodesInWords(now: Digest): string {
  const late = now.late.length;
  const all = now.nodes.length;
  return `${count(all)} node${all === 1 ? "" : "s"}${late > 0 ? `, ${late} late` : ""}`;
}

function Tile(props: { title: string; value: ComponentChildren; unit?: string; children?: ComponentChildren }) {
  return (
    <div class="tile">
      <h2>{props.title}</h2>
      <p class="figure">
        {props.value}
        {props.unit && <small>{props.unit}</small>}
      </p>
      {props.children}
    </div>
  );
}

function Tiles() {
  const now = digest.value;
  if (now === null) {
    if (connection.value === "absent") {
      return <Empty>This dashboard has no live figures; the tables work all the same.</Empty>;
    }
    return (
      <>
        {["Calls a second", "CPU", "Waiting", "Failed", "Workers", "Object store"].map((title) => (
          <Tile title={title} value={<span class="dim">–</span>} />
        ))}
      </>
    );
  }
  return (
    <>
      <RateTile />
      <ResourceTiles />
      <WaitingTile nodes={now.nodes} />
      <FailedTile nodes={now.nodes} />
      <WorkersTile nodes={now.nodes} />
      <StoreTile nodes={now.nodes} />
    </>
  );
}

function RateTile() {
  void historyLength.value;
  const rates = history.finished;
  const rate = rates[rates.length - 1];
  const ended = sum(digest.value?.nodes ?? [], (node) => node.finished);
  return (
    <Tile title="Calls a second" value={rate === undefined ? "–" : brief(rate)}>
      <p class="sub">{brief(ended)} finished so far</p>
    </Tile>
  );
}

function ResourceTiles() {
  const all = resources.value;
  const shown = ["CPU", "GPU"].filter((name) => all[name] !== undefined && all[name][0] > 0);
  return (
    <>
      {shown.map((name) => {
        const [total, available] = all[name]!;
        const busy = total - available;
        return (
          <Tile title={name} value={brief(busy)} unit={`of ${brief(total)}`}>
            <Meter label={`${percent(used(all[name]))} of ${name} are lent`} parts={[{ share: used(all[name]), tone: "accent" }]} />
            <p class="sub">{available > 0 ? `${brief(available)} free` : "all are lent"}</p>
          </Tile>
        );
      })}
    </>
  );
}

function WaitingTile(props: { nodes: DigestNode[] }) {
  const waiting = sum(props.nodes, (node) => node.waiting);
  const never = sum(props.nodes, (node) => node.infeasible);
  return (
    <Tile title="Waiting" value={brief(waiting)} unit={waiting === 1 ? "call" : "calls"}>
      <p class={`sub ${never > 0 ? "warn-text" : ""}`}>
        {never > 0 ? `${count(never)} that no node can run` : waiting > 0 ? "for a place" : "nothing waits"}
      </p>
    </Tile>
  );
}

function FailedTile(props: { nodes: DigestNode[] }) {
  const failed = sum(props.nodes, (node) => node.failed);
  const cancelled = sum(props.nodes, (node) => node.cancelled);
  return (
    <Tile title="Failed" value={<span class={failed > 0 ? "bad-text" : ""}>{brief(failed)}</span>} unit={failed === 1 ? "call" : "calls"}>
      <p class="sub">
        {failed > 0 ? <Link to="/tasks?ended=only&filter=state%3DFAILED">the last of them</Link> : "none"}
        {cancelled > 0 && `, ${count(cancelled)} cancelled`}
      </p>
    </Tile>
  );
}


function WorkersTile(props: { nodes: DigestNode[] }) {
  const states: Record<string, number> = {};
  for (const node of props.nodes) {
    for (const [state, number] of Object.entries(node.workers)) states[state] = (states[state] ?? 0) + number;
  }
  const all = Object.values(states).reduce((a, b) => a + b, 0);
  const idle = states["IDLE"] ?? 0;
  const share = (state: string) => (all > 0 ? (states[state] ?? 0) / all : 0);
  const words = Object.entries(states).map(([state, number]) => `${brief(number)} ${state === "ACTOR" && number !== 1 ? "actors" : state.toLowerCase()}`);
  return (
    <Tile title="Workers" value={brief(all - idle)} unit={`of ${brief(all)} at work`}>
      <Meter
        label={words.join(", ") || "no workers"}
        parts={[
          { share: share("LEASED"), tone: "accent" },
          { share: share("ACTOR"), tone: "accent-soft" },
          { share: share("BLOCKED") + share("STARTING"), tone: "warn" },
        ]}
      />
      <p class="sub">{words.join(", ") || "none"}</p>
    </Tile>
  );
}

function StoreTile(props: { nodes: DigestNode[] }) {
  const of = (key: keyof DigestNode["store"]) => sum(props.nodes, (node) => node.store[key]);
  const capacity = of("capacity_bytes");
  const pinned = of("pinned_bytes");
  const spilled = of("spilled_bytes");
  const share = (value: number) => (capacity > 0 ? value / capacity : 0);
  return (
    <Tile title="Object store" value={bytes(of("used_bytes"))}>
      <Meter
        label={`${percent(share(of("used_bytes")))} used, ${bytes(pinned)} held by readers, ${bytes(spilled)} on disk`}
        parts={[
          { share: share(pinned), tone: "accent" },
          { share: share(Math.max(0, of("used_bytes") - pinned)), tone: "accent-soft" },
        ]}
      />
      <p class="sub">
        of {bytes(capacity)}, {spilled > 0 ? <span class="warn-text">{bytes(spilled)} spilled</span> : `${brief(of("objects"))} objects`}
      </p>
    </Tile>
  );
}

function CallsCard() {
  void historyLength.value;
  const { time, failed, byName } = history;
  const size = (rates: number[]) => rates.reduce((a, b) => a + b, 0);
  const names = [...byName.keys()].filter((name) => size(byName.get(name)!) > 0).sort((a, b) => size(byName.get(b)!) - size(byName.get(a)!)).slice(0, 8);
  const lines = names.map((name) => ({ label: name, color: colorOf(name), values: byName.get(name)! }));
  if (failed.some((rate) => rate > 0)) lines.push({ label: "failed, of any", color: css("--bad"), values: failed });
  const end = time[time.length - 1] ?? 0;
  return (
    <Card title="Calls a second" note="by function, the last 5 minutes">
      {time.length < 2 ? (
        <Empty>{connection.value === "live" ? "Figures gather…" : "Nothing is heard of the cluster yet."}</Empty>
      ) : (
        <>
          <Chart
            time={[...time]}
            lines={lines}
            label={`Calls a second: ${lines.map((line) => line.label).join(", ") || "none"}`}
            unit={brief}
            height={220}
            stacked
            range={[end - Math.min(History.seconds, Math.max(60, end - time[0]!)), end]}
          />
          <Legend lines={lines.map((line) => ({ ...line, value: brief(line.values[line.values.length - 1] ?? 0) }))} />
        </>
      )}
    </Card>
  );
}

function FunctionsCard() {
  const functions = digest.value?.functions ?? [];
  return (
    <Card title="Busiest functions" note="now">
      {functions.length === 0 ? (
        <Empty>{digest.value ? "Nothing runs." : "Nothing is heard of the cluster yet."}</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Busiest functions">
          <table class="compact">
            <thead>
              <tr>
                <th scope="col" class="wide">Function</th>
                <th scope="col" class="num">a second</th>
                <th scope="col" class="num" title="Processors' worth of time">busy</th>
                <th scope="col" class="num">failed</th>
              </tr>
            </thead>
            <tbody>
              {functions.slice(0, 10).map((one) => (
                <tr key={`${one.job}/${one.type}/${one.name}`}>
                  <td class="wide">
                    <Link to={linkTo.fn(one.name)}>
                      <Name of={one.name} />
                    </Link>
                  </td>
                  <td class="num">{brief(one.per_second)}</td>
                  <td class="num">{one.busy.toFixed(one.busy < 10 ? 2 : 1)}</td>
                  <td class={`num ${one.failed > 0 ? "bad-text" : "dim"}`}>{brief(one.failed)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function WaitingCard() {
  const { value, error } = useLoaded((stop) => getJson<Demand>("/api/sheaf/demand", stop), [], 2000);
  const demand = value.value?.shapes ?? [];
  const groups = value.value?.gangs ?? [];
  return (
    <Card title="What waits, and why" note={value.value ? `${count(sum(demand, (one) => one.count) + groups.length)} in all` : ""}>
      {error.value !== null && <Problem of={error.value} />}
      {value.value && demand.length + groups.length === 0 && <Empty>Nothing waits for resources.</Empty>}
      <ul class="rows">
        {demand.map((one) => (
          <li>
            <div class="line">
              <b>{count(one.count)}×</b>
              <span class="mono">{inWords(one.resources) || "no resources"}</span>
              {one.infeasible && <State of="INFEASIBLE" />}
            </div>
            <p>{one.words}</p>
          </li>
        ))}
        {groups.map((group) => (
          <li>
            <div class="line">
              <b>group</b>
              <Link to={`/groups?filter=${encodeURIComponent(`group_id=${group.placement_group_id}`)}`} class="mono">
                {group.placement_group_id.slice(-12)}
              </Link>
              <State of={group.infeasible ? "INFEASIBLE" : "PENDING"} />
            </div>
            <p>
              {group.strategy}: {group.bundles.map((bundle) => `{${inWords(bundle)}}`).join(" ")}
            </p>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function EventsCard() {
  useEffect(() => {
    const stop = new AbortController();
    getJson<{ events: EventRow[] }>("/api/sheaf/events?limit=100", stop.signal).then(
      (answer) => addEvents(answer.events),
      () => undefined, // The stream brings what comes.
    );
    return () => stop.abort();
  }, []);
  return (
    <Card title="Events" note="newest first">
      {events.value.length === 0 && <Empty>Nothing has happened.</Empty>}
      <ul class="rows events" tabIndex={0} aria-label="Events">
        {events.value.slice(0, 60).map((event) => (
          <li key={event.event_id}>
            <div class="line">
              <At ms={event.time_ms} />
              {event.severity !== "INFO" && <State of={event.severity} />}
              <span>{event.message}</span>
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}
