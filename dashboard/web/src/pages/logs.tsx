// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { getJson, getText, nodeId, type NodeRow, type Rows } from "../api";
import { FollowedLog } from "../followed_log";
import { bytes, count } from "../format";
import { Card, Choice, Command, Copy, Empty, Page, Problem, useLoaded, useRested } from "../parts";
import { go, Link, query, withQuery } from "../router";
import { quoted } from "../shell";
import { TextView } from "../text_view";

const kGroups: Record<string, string> = {
  worker_out: "Output of workers",
  worker_err: "Errors of workers",
  driver: "Jobs",
  raylet: "Nodes",
  gcs_server: "Cluster's state",
  dashboard: "Dashboard",
  internal: "Others",
};

export function Logs() {
  const nodes = useLoaded((stop) => getJson<Rows<NodeRow>>("/api/sheaf/nodes?limit=1000&filter=state!=DEAD", stop), []);
  const rows = nodes.value.value?.rows ?? [];
  const node = Number(query.value.get("node") ?? rows[0]?.node ?? 0);
  const file = query.value.get("file") ?? "";
  const find = query.value.get("find") ?? "";
  return (
    <Page
      title="Logs"
      aside={
        <label class="inline">
          Node{" "}
          <select value={String(node)} onChange={(event) => go(withQuery({ node: event.currentTarget.value, file: null, find: null }))}>
            {rows.map((row) => (
              <option value={String(row.node)}>
                {row.node} · {row.host_name}
              </option>
            ))}
          </select>
        </label>
      }
    >
      {nodes.error.value !== null && <Problem of={nodes.error.value} />}
      {node > 0 && (
        <div class="columns files">
          <Files node={node} chosen={file} />
          <div>
            <SearchForm node={node} />
            {find && <Found node={node} find={find} />}
            {file && <File node={node} name={file} />}
            {!file && !find && (
              <Card title="Log">
                <Empty>Choose a file: the last lines of it are shown, and what comes. Or search in all of them.</Empty>
              </Card>
            )}
          </div>
        </div>
      )}
    </Page>
  );
}

function SearchForm(props: { node: number }) {
  const typed = useSignal(query.value.get("find") ?? "");
  const search = (event: Event) => {
    event.preventDefault();
    go(withQuery({ node: String(props.node), find: typed.value || null, file: null }));
  };
  return (
    <form class="bar" onSubmit={search}>
      <input
        type="search"
        class="grows"
        aria-label={`Search all files of node ${props.node}`}
        placeholder={`Search all files of node ${props.node}`}
        maxLength={200}
        value={typed.value}
        onInput={(event) => (typed.value = event.currentTarget.value)}
      />
      <button type="submit">Search</button>
    </form>
  );
}

interface Matches {
  matches: { file: string; line: string }[];
  searched_bytes: number;
  left_out_bytes: number;
  more: boolean;
}

function Found(props: { node: number; find: string }) {
  const { value, error, busy } = useLoaded(
    (stop) => getJson<Matches>(`/api/sheaf/logs/${props.node}?find=${encodeURIComponent(props.find)}`, stop),
    [props.node, props.find],
  );
  const found = value.value;
  const files = [...new Set(found?.matches.map((match) => match.file))];
  return (
    <Card
      title={busy.value ? "Searching…" : `${count(found?.matches.length ?? 0)} lines${found?.more ? ", and more" : ""}`}
      note={
        found &&
        `in ${bytes(found.searched_bytes)}${found.left_out_bytes > 0 ? `; ${bytes(found.left_out_bytes)} that are older were left out` : ""}`
      }
    >
      {error.value !== null && <Problem of={error.value} />}
      {found?.matches.length === 0 && <Empty>No line of node {props.node} has it.</Empty>}
      {files.map((file) => (
        <>
          <h3>
            <Link to={withQuery({ file, find: null })} class="mono">
              {file}
            </Link>
          </h3>
          <TextView
            text={found!.matches.filter((match) => match.file === file).map((match) => match.line).join("\n")}
            label={`Lines of ${file}`}
          />
        </>
      ))}
    </Card>
  );
}

function Files(props: { node: number; chosen: string }) {
  const typed = useSignal("");
  const find = useRested(typed);
  const { value, error } = useLoaded(
    (stop) => getJson<{ data: { result: Record<string, string[]> } }>(`/api/v0/logs?node_id=${nodeId(props.node)}`, stop),
    [props.node],
    5000,
  );
  const groups = Object.entries(value.value?.data.result ?? {})
    .map(([group, names]) => [group, names.filter((name) => name.includes(find.value))] as const)
    .filter(([, names]) => names.length > 0);
  return (
    <Card title={`Files of node ${props.node}`} class="file-list">
      <input
        type="search"
        aria-label="Find a file"
        placeholder="Find a file"
        value={typed.value}
        onInput={(event) => (typed.value = event.currentTarget.value)}
      />
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && groups.length === 0 && <Empty>No such file.</Empty>}
      {groups.map(([group, names]) => (
        <>
          <h3>{kGroups[group] ?? group}</h3>
          <ul>
            {names.slice(0, 300).map((name) => (
              <li>
                <Link to={withQuery({ node: String(props.node), file: name, find: null })} current={name === props.chosen} class="mono">
                  {name}
                </Link>
              </li>
            ))}
          </ul>
          {names.length > 300 && <p class="hint">and {names.length - 300} more: find them by name</p>}
        </>
      ))}
    </Card>
  );
}

const kLines = [
  ["1000", "1,000 lines"],
  ["10000", "10,000"],
  ["follow", "Follow"],
] as const;

function File(props: { node: number; name: string }) {
  const how = useSignal<"1000" | "10000" | "follow">("1000");
  const find = useSignal("");
  const where = `node_id=${nodeId(props.node)}&filename=${encodeURIComponent(props.name)}`;
  const follows = how.value === "follow";
  const { value, error, again } = useLoaded(
    async (stop) => (follows ? "" : getText(`/api/v0/logs/file?${where}&lines=${how.value}`, stop)),
    [where, how.value],
  );
  const choice = <Choice label="How much" value={how.value} options={kLines} onChange={(next) => (how.value = next)} />;
  return (
    <>
      {follows ? (
        <>
          <div class="bar">{choice}</div>
          <FollowedLog
            path={`/api/v0/logs/stream?${where}&lines=1000`}
            lastLine={`/api/v0/logs/file?${where}&lines=1`}
            title={props.name}
          />
        </>
      ) : (
        <>
          <div class="bar">
            {choice}
            <span class="spring" />
            <button type="button" class="quiet" onClick={again}>Refresh</button>
            <Copy label="Copy" text={() => value.value ?? ""} />
          </div>
          <Card
            title={<span class="mono">{props.name}</span>}
            note={
              <input
                type="search"
                aria-label="Find in these lines"
                placeholder="Find in these lines"
                value={find.value}
                onInput={(event) => (find.value = event.currentTarget.value)}
              />
            }
          >
            {error.value !== null && <Problem of={error.value} />}
            {value.value === "" && <Empty>The file is empty.</Empty>}
            {value.value && <TextView text={value.value} find={find.value} label={props.name} follows />}
          </Card>
        </>
      )}
      <Command line={`sheaf logs ${quoted(props.name)} --node ${props.node}${follows ? " --follow" : ` --tail ${how.value}`}`} />
    </>
  );
}
