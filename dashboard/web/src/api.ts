// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the page asks its server.
import { signal } from "@preact/signals";

/** The server wants to know who we are. */
export const wantsToken = signal(false);

/** Why there is no answer, in a sentence. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const kTimeMs = 30_000;

async function send(path: string, init: RequestInit, stop?: AbortSignal): Promise<Response> {
  const late = AbortSignal.timeout(kTimeMs);
  let response: Response;
  try {
    response = await fetch(path, { ...init, signal: stop ? AbortSignal.any([stop, late]) : late });
  } catch (error) {
    if (stop?.aborted) throw error;
    throw new Refusal(0, late.aborted ? "No answer within 30 s." : "The dashboard cannot be reached.");
  }
  if (response.ok) return response;
  throw await refused(response);
}

async function refused(response: Response): Promise<Refusal> {
  if (response.status === 401) wantsToken.value = true;
  return new Refusal(response.status, await whyRefused(response));
}

const kLongestSentence = 500; // A proxy may answer with a page of its own.

/** What an answer that is no success gives as its reason. */
export async function whyRefused(response: Response): Promise<string> {
  const words = sentence(await response.text());
  return words && words.length <= kLongestSentence && !words.startsWith("<") ? words : `HTTP ${response.status}`;
}

/** Some routes give their reason as JSON. */
function sentence(body: string): string {
  try {
    const said: unknown = JSON.parse(body);
    if (said && typeof said === "object" && "msg" in said) return String(said.msg);
  } catch {
    // Plain text, as most do.
  }
  return body.trim();
}

export async function getJson<T>(path: string, stop?: AbortSignal): Promise<T> {
  return (await send(path, {}, stop)).json() as Promise<T>;
}

export async function getText(path: string, stop?: AbortSignal): Promise<string> {
  return (await send(path, {}, stop)).text();
}

/** X-Sheaf: no form and no page from elsewhere can send it. */
export async function post<T>(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const init: RequestInit = { method: "POST", headers: { "X-Sheaf": "1", ...headers } };
  if (body !== undefined) init.body = JSON.stringify(body);
  return (await send(path, init)).json() as Promise<T>;
}

/** Text that goes on: `take` gets each piece, until the end or `stop`. */
export async function follow(path: string, take: (text: string) => void, stop: AbortSignal): Promise<void> {
  const response = await fetch(path, { signal: stop });
  if (!response.ok) throw await refused(response);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    take(value);
  }
}

export async function logIn(token: string): Promise<void> {
  const answer = await fetch("/api/authenticate", {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "X-Sheaf": "1" },
  });
  if (!answer.ok) throw new Refusal(answer.status, (await answer.text()).trim());
  wantsToken.value = false;
}

/** Which version of the page the server has now. */
export async function pageVersion(): Promise<string | null> {
  const answer = await fetch("/assets/app.js", { method: "HEAD", cache: "no-store" });
  return answer.ok ? answer.headers.get("ETag") : null;
}

/** "0000...0002", as routes under Ray's names call node 2. */
export function nodeId(node: number): string {
  return node.toString(16).padStart(56, "0");
}

export interface Rows<T> {
  rows: T[];
  total: number | null;
  next: string | null;
  groups: { value: string | number | null; rows: number; size_bytes: number }[] | null;
  truncated: boolean;
  late_nodes: number[];
  events_lost: number;
}

export type Amounts = Record<string, number>;

export interface NodeRow {
  node: number;
  state: string;
  host_name: string;
  address: string;
  available: Amounts;
  total: Amounts;
  labels: Record<string, string>;
  start_time_unix_s: number | null;
  version: string;
}

export interface ActorRow {
  actor_id: string;
  class_name: string;
  name: string;
  name_space: string;
  state: string;
  process: string | null;
  os_pid: number | null;
  restarts: number;
  job: number | null;
  detached: boolean;
  death: string;
}

export interface TaskRow {
  task_id: string;
  name: string;
  state: string;
  attempt: number;
  owner: string | null;
  worker: string | null;
  job: number | null;
  actor_id: string;
  run_ns: number | null;
  weight: number | null;
  error_type: string;
  words: string;
  type: string;
  os_pid: number | null;
  created_unix_ms: number | null;
  begin_unix_ms: number | null;
  end_unix_ms: number | null;
  error: string;
}

export interface FunctionRow {
  name: string;
  type: string;
  job: number | null;
  waiting: number;
  running: number;
  finished: number;
  failed: number;
  cancelled: number;
  mean_ns: number;
  longest_ns: number;
  waiting_for_arguments: number;
  waiting_for_place: number;
  timed: number;
  run_time: number[];
}

export interface ObjectRow {
  object_id: string;
  size_bytes: number;
  where: string;
  owner: string | null;
  local_refs: number;
  task_refs: number;
  borrowing_nodes: number;
  age_s: number | null;
  may_leak: boolean;
}

export interface GroupRow {
  group_id: string;
  name: string;
  state: string;
  placement: string;
  bundles: Amounts[];
  bundle_nodes: number[];
  detached: boolean;
}

export interface WorkerRow {
  process: string;
  os_pid: number | null;
  state: string;
  job: number | null;
  owner: string | null;
  running: string;
}

export interface DriverRow {
  job: number;
  state: string;
  driver: string;
  os_pid: number;
  name_space: string;
  start_time_unix_s: number;
  entrypoint: string;
}

export interface TrainRow {
  run_id: string;
  name: string;
  state: string;
  job: number | null;
  driver: string | null;
  workers: number;
  attempts: number;
  steps: number;
  start_time_unix_s: number | null;
  end_time_unix_s: number | null;
  metrics: Record<string, unknown>;
  checkpoint: string | null;
  message: string;
  path: string;
  checkpoint_step: number | null;
  reported_unix_ms: number | null;
}

export interface TrainRun {
  rows: TrainRow[];
  group: { ranks?: { rank: number; process: string; pid: number; actor_id: string }[]; left_out?: number };
  history: {
    attempts?: { attempt: number; start_ms: number; workers: number; kept: number; from_step: number; why: string }[];
    events?: { time_ms: number; step: number; text: string }[];
    series?: { steps: number[]; time_ms: number[]; metrics: Record<string, (number | null)[]> };
  };
}

export interface SubmissionRow {
  submission_id: string;
  job_id: string | null;
  status: string;
  entrypoint: string;
  message: string | null;
  error_type: string | null;
  start_time: number | null;
  end_time: number | null;
  metadata: Record<string, string>;
  runtime_env: Record<string, unknown>;
  driver_node_id: string | null;
  driver_exit_code: number | null;
}

export interface EventRow {
  event_id: string;
  time_ms: number;
  severity: string;
  kind: string;
  message: string;
  node_id: string | null;
  job_id: string | null;
  id: string | null;
}
