// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
import { useSignal } from "@preact/signals";
import { Component, type ComponentChildren, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { logIn, wantsToken } from "./api";
import { setTheme, theme, type Theme } from "./colors";
import { span } from "./format";
import { connection, digest, heardAt, refusal, startLive, trouble } from "./live";
import { Empty, Page, Problem } from "./parts";
import { Actor, Actors } from "./pages/actors";
import { Function, Functions } from "./pages/functions";
import { Job, Jobs } from "./pages/jobs";
import { Logs } from "./pages/logs";
import { Metrics } from "./pages/metrics";
import { Node, Nodes } from "./pages/nodes";
import { Groups, Objects } from "./pages/objects";
import { Overview } from "./pages/overview";
import { Stream } from "./pages/stream";
import { Task, Tasks } from "./pages/tasks";
import { OneTrainRun, TrainRuns } from "./pages/train";
import { address, Link, path } from "./router";

// What the page has, in the order of the menu.
const kPages: { name: string; title: string; show: () => ComponentChildren; one?: (id: string) => ComponentChildren }[] = [
  { name: "", title: "Overview", show: () => <Overview /> },
  { name: "tasks", title: "Tasks", show: () => <Tasks />, one: (id) => <Task id={id} /> },
  { name: "stream", title: "Task stream", show: () => <Stream /> },
  { name: "functions", title: "Functions", show: () => <Functions />, one: (id) => <Function name={id} /> },
  { name: "actors", title: "Actors", show: () => <Actors />, one: (id) => <Actor id={id} /> },
  {
    name: "nodes",
    title: "Nodes",
    show: () => <Nodes />,
    one: (id) => (/^[1-9]\d{0,8}$/.test(id) ? <Node number={Number(id)} /> : <NotHere what={`node ${id}`} />),
  },
  { name: "jobs", title: "Jobs", show: () => <Jobs />, one: (id) => <Job id={id} /> },
  { name: "train", title: "Train", show: () => <TrainRuns />, one: (id) => <OneTrainRun id={id} /> },
  { name: "logs", title: "Logs", show: () => <Logs /> },
  { name: "objects", title: "Objects", show: () => <Objects /> },
  { name: "groups", title: "Placement groups", show: () => <Groups /> },
  { name: "metrics", title: "Metrics", show: () => <Metrics /> },
];

function NotHere(props: { what: string }) {
  return (
    <Page title="Not here">
      <Empty>
        There is no {props.what}. The <Link to="/">overview</Link> shows what there is.
      </Empty>
    </Page>
  );
}

function Shown() {
  const [name = "", id, ...more] = path.value;
  const page = kPages.find((one) => one.name === name);
  if (page === undefined || more.length > 0) return <NotHere what={`page /${path.value.join("/")}`} />;
  if (id === undefined) return <>{page.show()}</>;
  return <>{page.one ? page.one(id) : <NotHere what={`page /${name}/${id}`} />}</>;
}

/** A page that fails says so; the others go on. */
class Fallible extends Component<{ of: string; children: ComponentChildren }, { wrong: string; of: string }> {
  override state = { wrong: "", of: "" };
  /** Another page has not failed, nor has this one when one comes back to it. */
  static getDerivedStateFromProps(props: { of: string }, state: { of: string }) {
    return state.of === props.of ? null : { wrong: "", of: props.of };
  }
  override componentDidCatch(error: unknown): void {
    this.setState({ wrong: String(error) });
  }
  override render() {
    if (this.state.wrong === "") return this.props.children;
    return (
      <Page title="This page has failed">
        <Problem of={this.state.wrong} />
        <p>
          <button type="button" onClick={() => location.reload()}>Load it again</button>
        </p>
      </Page>
    );
  }
}

function Menu() {
  const now = path.value[0] ?? "";
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    list.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [now]);
  return (
    <nav class="menu" aria-label="Pages">
      <Link to="/" class="brand">
        <img src="/assets/icon.svg" alt="" width="22" height="22" />
        <span>Sheaf</span>
      </Link>
      <ul ref={list}>
        {kPages.map((page) => (
          <li>
            <Link to={`/${page.name}`} current={page.name === now}>
              {page.title}
            </Link>
          </li>
        ))}
      </ul>
      <div class="menu-foot">
        <Connection />
        <ThemeSwitch />
      </div>
    </nav>
  );
}

const kThemes: Record<Theme, [Theme, string]> = { system: ["light", "◐"], light: ["dark", "☀"], dark: ["system", "☾"] };

function ThemeSwitch() {
  const [next, sign] = kThemes[theme.value];
  return (
    <button
      type="button"
      class="quiet"
      aria-label={`Colours: ${theme.value}. Change to ${next}.`}
      title={`Colours: ${theme.value}`}
      onClick={() => setTheme(next)}
    >
      {sign}
    </button>
  );
}

const kConnections = { connecting: "connecting", live: "live", stale: "stale", absent: "no live figures" };

function Connection() {
  if (connection.value === "connecting" && refusal.value !== "") {
    return (
      <span class="state bad" role="status" title={refusal.value}>
        refused
      </span>
    );
  }
  const tone = { connecting: "plain", live: "good", stale: "bad", absent: "plain" }[connection.value];
  return (
    <span class={`state ${tone}`} role="status" title="Whether the page hears of the cluster">
      {kConnections[connection.value]}
    </span>
  );
}

/** What is on the screen is old. */
function StaleBanner() {
  const now = useSignal(performance.now());
  const stale = connection.value === "stale";
  const why = wordsOfSilence();
  useEffect(() => {
    if (!stale) return undefined;
    const timer = setInterval(() => (now.value = performance.now()), 1000);
    return () => clearInterval(timer);
  }, [stale]);
  if (digest.value === null && why !== "") {
    return (
      <p class="banner" role="alert">
        {why} The page tries again by itself.
      </p>
    );
  }
  if (!stale) return null;
  return (
    <p class="banner" role="alert">
      {why || "The connection is lost."} What you see is {span(Math.max(1, (now.value - heardAt.value) / 1000))} old; the page tries again
      by itself.
    </p>
  );
}

/** Why no figures come, as far as the dashboard says. */
function wordsOfSilence(): string {
  if (refusal.value !== "") return `The dashboard sends this page no live figures: ${refusal.value.replace(/\.?$/, ".")}`;
  return trouble.value === "" ? "" : `The dashboard hears nothing of the cluster (${trouble.value}).`;
}

function LateBanner() {
  const late = digest.value?.late ?? [];
  if (late.length === 0 || connection.value !== "live") return null;
  return (
    <p class="banner soft">
      Without the figures of node{late.length > 1 ? "s" : ""} {late.slice(0, 20).join(", ")}
      {late.length > 20 ? ` and ${late.length - 20} others` : ""}, which did not answer in time.
    </p>
  );
}

function Login() {
  const token = useSignal("");
  const wrong = useSignal<unknown>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await logIn(token.value.trim());
      location.reload();
    } catch (error) {
      wrong.value = error;
    }
  };
  return (
    <main class="login">
      <form class="card stacked" onSubmit={(event) => void submit(event)}>
        <h1>Sheaf</h1>
        <p>
          This dashboard is for who has its token. <code>sheaf token --http</code> prints it, where the cluster's own token is.
        </p>
        <label>
          Token
          <input
            type="password"
            required
            autocomplete="current-password"
            value={token.value}
            onInput={(event) => (token.value = event.currentTarget.value)}
          />
        </label>
        {wrong.value !== null && <Problem of={wrong.value} />}
        <div class="actions">
          <button type="submit" class="primary">Show the cluster</button>
        </div>
      </form>
    </main>
  );
}

function App() {
  if (wantsToken.value) return <Login />;
  return (
    <>
      <a class="skip" href="#main">
        To the content
      </a>
      <Menu />
      <main id="main" class={connection.value === "stale" ? "stale" : ""}>
        <StaleBanner />
        <LateBanner />
        <Fallible of={address.value}>
          <Shown />
        </Fallible>
      </main>
    </>
  );
}

startLive();
render(<App />, document.getElementById("app")!);
