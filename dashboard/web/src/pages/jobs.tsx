// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { type DriverRow, getJson, post, type SubmissionRow } from "../api";
import { FollowedLog } from "../followed_log";
import { duration } from "../format";
import { Ago, Card, Command, Dialog, Empty, Facts, Order, Page, Problem, State, useLoaded } from "../parts";
import { go, Link, linkTo } from "../router";
import { type Column, Pager, Table, Taking, usePages } from "../table";
import { Process } from "./tasks";

const drivers: Column<DriverRow>[] = [
  { key: "job", title: "Job", number: true, sorts: true, cell: (row) => <Link to={`/tasks?filter=job%3D${row.job}`}>{row.job}</Link> },
  { key: "state", title: "State", sorts: true, cell: (row) => <State of={row.state} /> },
  { key: "driver", title: "Driver", cell: (row) => <Process of={row.driver} pid={row.os_pid} /> },
  { key: "os_pid", title: "Pid", number: true, cell: (row) => row.os_pid },
  {
    key: "start_time_unix_s",
    title: "Started",
    sorts: true,
    cell: (row) => <Ago ms={row.start_time_unix_s ? row.start_time_unix_s * 1000 : null} />,
  },
  {
    key: "entrypoint",
    title: "Command",
    wide: true,
    cell: (row) => (
      <span class="mono" title={row.entrypoint}>
        {row.entrypoint}
      </span>
    ),
  },
];

export function Jobs() {
  const submits = useSignal(false);
  return (
    <Page
      title="Jobs"
      aside={
        <button type="button" class="primary" onClick={() => (submits.value = true)}>
          Submit a job…
        </button>
      }
    >
      <Submissions />
      <Card title="Drivers" note="programs that work on the cluster, those of submitted jobs, too" class="flush">
        <Table<DriverRow>
          kind="jobs"
          columns={drivers}
          keys={["state", "job", "os_pid", "driver", "name_space", "entrypoint"]}
          rowKey={(row) => String(row.job)}
          order="-job"
          empty="No program has worked on this cluster yet."
        />
      </Card>
      <Dialog title="Submit a job" open={submits}>
        <SubmitForm />
      </Dialog>
    </Page>
  );
}

const kPage = 50;

function Submissions() {
  const pages = usePages("submissions", "submissions.after", true);
  const { value, error, again } = useLoaded(
    (stop) => {
      const after = pages.after === null ? "" : `&after=${encodeURIComponent(pages.after)}`;
      return getJson<SubmissionRow[]>(`/api/jobs?limit=${kPage}${after}`, stop);
    },
    [pages.after],
    2000,
  );
  const rows = value.value ?? [];
  const next = rows.length === kPage ? rows[rows.length - 1]!.submission_id : null;
  return (
    <Card
      title="Submitted"
      class="flush"
      note={
        <span class="bar">
          newest first <Taking again={again} rows={rows} line="sheaf job list" />
        </span>
      }
    >
      {error.value !== null && <Problem of={error.value} />}
      {value.value !== null && rows.length === 0 && (
        <Empty>
          No job has been submitted. <code>sheaf job submit -- python program.py</code> does it, too.
        </Empty>
      )}
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Submitted jobs">
          <table>
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">State</th>
                <th scope="col">Submitted</th>
                <th scope="col" class="num">Took</th>
                <th scope="col" class="wide">Command</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.submission_id}>
                  <td><Link to={linkTo.job(row.submission_id)} class="mono">{row.submission_id}</Link></td>
                  <td><State of={row.status} /></td>
                  <td><Ago ms={row.start_time} /></td>
                  <td class="num">{tookOf(row)}</td>
                  <td class="wide"><span class="mono" title={row.entrypoint}>{row.entrypoint}</span></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Pager pages={pages} next={next} rows={rows.length} total={null} />
    </Card>
  );
}

function tookOf(row: SubmissionRow): string {
  return row.start_time && row.end_time ? duration((row.end_time - row.start_time) * 1e6) : "";
}

function SubmitForm() {
  const command = useSignal("");
  const id = useSignal("");
  const environment = useSignal("");
  const wrong = useSignal<unknown>(null);
  const busy = useSignal(false);
  // One for each thing that is submitted: an answer that got lost must not make two jobs of it.
  const key = useRef({ of: "", key: "" });
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    try {
      const runtime_env: unknown = environment.value.trim() ? JSON.parse(environment.value) : {};
      const body = { entrypoint: command.value, runtime_env, ...(id.value.trim() && { submission_id: id.value.trim() }) };
      const text = JSON.stringify(body);
      if (key.current.of !== text) {
        const random = crypto.getRandomValues(new Uint32Array(4));
        key.current = { of: text, key: `page-${[...random].map((word) => word.toString(16)).join("")}` };
      }
      const made = await post<{ submission_id: string }>("/api/jobs", body, { "Idempotency-Key": key.current.key });
      go(linkTo.job(made.submission_id));
    } catch (error) {
      wrong.value = error instanceof SyntaxError ? `The environment is no JSON: ${error.message}` : error;
    }
    busy.value = false;
  };
  return (
    <form class="stacked" onSubmit={(event) => void submit(event)}>
      <label>
        Command
        <textarea
          class="mono"
          rows={2}
          required
          placeholder="python program.py --fast"
          value={command.value}
          onInput={(event) => (command.value = event.currentTarget.value)}
        />
      </label>
      <label>
        <span>
          Id <span class="dim">(else one is made)</span>
        </span>
        <input type="text" class="mono" value={id.value} onInput={(event) => (id.value = event.currentTarget.value)} />
      </label>
      <label>
        <span>
          Runtime environment <span class="dim">(JSON)</span>
        </span>
        <textarea
          class="mono"
          rows={4}
          placeholder={'{"env_vars": {"LEVEL": "3"}}'}
          value={environment.value}
          onInput={(event) => (environment.value = event.currentTarget.value)}
        />
      </label>
      {wrong.value !== null && <Problem of={wrong.value} />}
      <p class="dim">A working directory is uploaded by the command line:</p>
      <Command line={`sheaf job submit --working-dir . -- ${command.value || "python program.py"}`} />
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value}>
          Submit
        </button>
      </div>
    </form>
  );
}

const kEnded = ["SUCCEEDED", "FAILED", "STOPPED"];

export function Job(props: { id: string }) {
  const at = `/api/jobs/${encodeURIComponent(props.id)}`;
  const { value, error, again } = useLoaded((stop) => getJson<SubmissionRow>(at, stop), [props.id], 2000);
  const row = value.value;
  return (
    <Page
      title={`Job ${props.id}`}
      aside={
        <>
          <Link to="/jobs">All jobs</Link>
          {row && row.submission_id && !kEnded.includes(row.status) && (
            <Order button="Stop…" title={`Stop job ${props.id}?`} leave="Let it run" confirm="Stop the job" path={`${at}/stop`} line={`sheaf job stop ${props.id}`} then={again}>
              <p>Its command and all that this has started are ended.</p>
            </Order>
          )}
        </>
      }
    >
      {error.value !== null && <Problem of={error.value} />}
      {row && (
        <>
          <div class="columns one-one">
            <Card title="Job">
              <Facts
                of={[
                  ["State", <State of={row.status} />],
                  ["Command", <span class="mono break">{row.entrypoint}</span>],
                  ["Submitted", <Ago ms={row.start_time} />],
                  ["Ended", row.end_time && <Ago ms={row.end_time} />],
                  ["Took", tookOf(row)],
                  ["Exit code", row.driver_exit_code === null ? "" : String(row.driver_exit_code)],
                  ["Its calls", row.job_id && <Link to={`/tasks?filter=job%3D${parseInt(row.job_id, 16)}`}>of job {parseInt(row.job_id, 16)}</Link>],
                ]}
              />
            </Card>
            <Card title="What there is to say">
              <p class="why">{row.message || "–"}</p>
              {Object.keys(row.metadata).length > 0 && <pre>{JSON.stringify(row.metadata, null, 2)}</pre>}
              {Object.keys(row.runtime_env).length > 0 && <pre>{JSON.stringify(row.runtime_env, null, 2)}</pre>}
              <Command line={`sheaf job logs --follow ${props.id}`} />
            </Card>
          </div>
          {row.submission_id && (
            <FollowedLog
              path={`/api/sheaf/jobs/${encodeURIComponent(props.id)}/logs`}
              lastLine={`/api/v0/logs/file?submission_id=${encodeURIComponent(props.id)}&lines=1`}
              over={kEnded.includes(row.status)}
            />
          )}
        </>
      )}
    </Page>
  );
}
