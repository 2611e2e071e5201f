# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Traces by OpenTelemetry: what nodes export of calls, and the user's spans that calls are in. The
receiver reads with the package opentelemetry-proto, and the user's spans are of opentelemetry-sdk."""

import asyncio
import http.server
import json
import pathlib
import re
import sys
import threading
import time
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from sheaf import cross_language
from sheaf.util.tracing import setup_local_tmp_tracing
from test_cross_language import LIBRARY

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.proto")

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.sdk.trace import TracerProvider


class Receiver:
    """Of OTLP over HTTP, on this machine. `answer` is its status; None: it never answers."""

    def __init__(self):
        self.spans, self.requests, self.resources = [], [], []
        self.answer = 200
        self._over = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers)))
                if receiver.answer is None:
                    receiver._over.wait(WAIT_S)
                    return
                if receiver.answer == 200:
                    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                    for of_resource in request.resource_spans:
                        receiver.resources.append(attributes(of_resource.resource))
                        for scope in of_resource.scope_spans:
                            receiver.spans.extend(scope.spans)
                self.send_response(receiver.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def named(self, *names):
        """The spans of the calls with these names, once all are there, each the only one."""

        def found():
            by_name = {span.name: span for span in self.spans}
            return [by_name.get(f"{name} ray.remote_worker") for name in names]

        wait_until(lambda: all(found()), lambda: f"{names} of {[s.name for s in self.spans]}")
        return found()

    def close(self):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def attributes(holder):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in holder.attributes}


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def exported(receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    return receiver


@pytest.fixture(scope="module")
def tracer():
    """This program's own spans, which nobody exports."""
    trace.set_tracer_provider(TracerProvider())
    return trace.get_tracer("test")


@sheaf.remote
def leaf():
    return 1


@sheaf.remote(resources={"there": 1})
def middle(actor):
    return sheaf.get([leaf.remote(), actor.step.remote()])


@sheaf.remote(resources={"here": 1})
def root(actor):
    return sheaf.get(middle.remote(actor))


@sheaf.remote
def fails():
    raise ValueError("as it should")


@sheaf.remote
def span_here():
    context = trace.get_current_span().get_span_context()
    return context.trace_id, context.span_id


@sheaf.remote
class Async:
    async def step(self):
        await asyncio.sleep(0)
        return await leaf.remote()

    async def span_here(self):
        await asyncio.sleep(0.01)  # Calls of different traces run between each other.
        context = trace.get_current_span().get_span_context()
        return context.trace_id, context.span_id


HERE = {"num_cpus": 2, "resources": {"here": 1}}
THERE = {"num_cpus": 2, "resources": {"there": 2}}


def test_the_tree_of_a_nested_job_is_complete(exported, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mill")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
    with joined_cluster(HERE, THERE) as cluster:
        actor = Async.options(resources={"there": 1}).remote()
        assert sheaf.get(root.remote(actor), timeout=WAIT_S) == [1, 1]
        with pytest.raises(ValueError):
            sheaf.get(fails.remote(), timeout=WAIT_S)
        top, mid, step, failed = exported.named("root", "middle", "Async.step", "fails")
        wait_until(lambda: sum(s.name == "leaf ray.remote_worker" for s in exported.spans) == 2)
        job = sheaf.get_runtime_context().get_job_id()
        nodes = {cluster.head_node.node_id, cluster.worker_nodes[0].node_id}
    assert {span.trace_id for span in exported.spans} == {top.trace_id}, "the job is one trace"
    assert len({span.span_id for span in exported.spans}) == len(exported.spans)
    assert not top.parent_span_id
    assert mid.parent_span_id == top.span_id
    assert step.parent_span_id == mid.span_id
    leaves = [s for s in exported.spans if s.name == "leaf ray.remote_worker"]
    assert {s.parent_span_id for s in leaves} == {mid.span_id, step.span_id}
    assert top.start_time_unix_nano <= mid.start_time_unix_nano < mid.end_time_unix_nano
    assert mid.end_time_unix_nano <= top.end_time_unix_nano
    assert abs(time.time_ns() - top.end_time_unix_nano) < 600e9

    said = attributes(mid)
    assert (said["ray.remote"], said["ray.function"]) == ("function", "middle")
    assert {said["ray.node_id"], attributes(top)["ray.node_id"]} == nodes
    assert said["ray.job_id"] == job
    assert re.fullmatch("[0-9a-f]{32}", said["ray.task_id"])
    assert said["sheaf.state"] == "FINISHED"
    said = attributes(step)
    assert said["ray.remote"] == "actor"
    assert (said["ray.actor_class"], said["ray.actor_method"]) == ("Async", "step")
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert "as it should" in failed.status.message
    assert top.status.code == top.status.STATUS_CODE_UNSET

    path, headers = exported.requests[0]
    assert path == "/v1/traces"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["x-tenant"] == "a b"
    assert {one["service.name"] for one in exported.resources} == {"mill"}


def test_calls_below_a_span_of_the_users_are_in_its_trace(exported, tracer):
    cross_language.load(LIBRARY)
    try:
        with joined_cluster(HERE, THERE):
            actor = Async.options(resources={"there": 1}).remote()
            square = cross_language.cpp_function("app::Square").options(resources={"there": 1})
            sheaf.get([actor.span_here.remote(), square.remote(2)], timeout=WAIT_S)
            with tracer.start_as_current_span("mine") as mine:
                calls = [span_here.options(resources={"there": 1}).remote()]
                calls += [actor.span_here.remote() for _ in range(3)]
                inside = sheaf.get(calls, timeout=WAIT_S)
                assert sheaf.get(square.remote(3), timeout=WAIT_S) == 9
            with tracer.start_as_current_span("other") as other:
                elsewhere = sheaf.get(actor.span_here.remote(), timeout=WAIT_S)
            without = sheaf.get(span_here.remote(), timeout=WAIT_S)
            context = mine.get_span_context()

            def of_mine():
                own = context.trace_id.to_bytes(16, "big")
                return [span for span in exported.spans if span.trace_id == own]

            wait_until(lambda: len(of_mine()) == 5, lambda: f"{of_mine()}")
    finally:
        cross_language._library = ""
    assert {one[0] for one in inside} == {context.trace_id}
    assert elsewhere[0] == other.get_span_context().trace_id
    assert without == (0, 0)
    # What runs in a call is below the call's own span, and that below the user's.
    assert {span.parent_span_id for span in of_mine()} == {context.span_id.to_bytes(8, "big")}
    assert {one[1].to_bytes(8, "big") for one in inside} == {
        span.span_id for span in of_mine() if "Square" not in span.name
    }


def test_without_an_exporter_the_callers_span_goes_through(node, tracer):
    with tracer.start_as_current_span("mine") as mine:
        seen = sheaf.get(through.remote(), timeout=WAIT_S)
    context = mine.get_span_context()
    assert seen == [(context.trace_id, context.span_id)] * 2
    unsampled = trace.NonRecordingSpan(context)
    with trace.use_span(unsampled):  # It is not recorded here: there is no such span to be below.
        assert sheaf.get(span_here.remote(), timeout=WAIT_S) == (0, 0)
    assert not any("spans" in name for name in threads_of_nodes()), "nobody waits for spans"


@sheaf.remote
def through():
    context = trace.get_current_span().get_span_context()
    return [(context.trace_id, context.span_id), sheaf.get(span_here.remote())]


def threads_of_nodes():
    """Of the nodes that this program has started, which are its children."""
    listed = [file.read_text() for file in pathlib.Path("/proc/self/task").glob("*/children")]
    nodes = [pathlib.Path(f"/proc/{pid}") for pid in " ".join(listed).split()]
    found = [file.read_text() for node in nodes for file in node.glob("task/*/comm")]
    assert "task-events\n" in found
    return found


def dropped():
    url = f"http://127.0.0.1:{sheaf.nodes()[0]['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        found = re.search(r"^sheaf_spans_dropped_total\S* (\d+)", answer.read().decode(), re.M)
    return int(found[1])


@pytest.mark.parametrize("answer", [None, 400], ids=["silent", "refusing"])
def test_calls_go_on_without_the_receiver(exported, answer):
    exported.answer = answer
    sheaf.shutdown()
    sheaf.init(num_cpus=2, log_to_driver=False)
    try:
        assert sheaf.get([leaf.remote() for _ in range(100)], timeout=WAIT_S) == [1] * 100
        wait_until(lambda: exported.requests, "nothing was sent")
        assert sheaf.get([leaf.remote() for _ in range(100)], timeout=WAIT_S) == [1] * 100
        if answer == 400:
            wait_until(dropped, "no span is counted as dropped")
    finally:
        begun = time.monotonic()
        sheaf.shutdown()
    # The node's own end, and the exporter's last words: by far less than its patience of 10 s.
    assert time.monotonic() - begun < 9


HOOK = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

def setup():
    file = open(os.path.join({folder!r}, str(os.getpid())), "w")
    out = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(out))
    trace._TRACER_PROVIDER_SET_ONCE._done = False  # This test's process has one already.
    trace.set_tracer_provider(provider)
"""


def spans_by_path(folder):
    """By the names from each span up to the root of its trace."""
    files = [file for file in folder.iterdir() if file.name.isdigit()]
    lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
    spans = [json.loads(line) for line in lines if line.endswith("\n")]
    by_id = {span["context"]["span_id"]: span for span in spans}

    def above(span):
        parent = by_id.get(span["parent_id"])
        return (span["name"], *(above(parent) if parent else ()))

    return {above(span): span for span in spans}


def test_a_hook_gives_calls_spans_with_rays_names(tmp_path, monkeypatch):
    (tmp_path / "trace_hook.py").write_text(HOOK.format(folder=str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    nest = ("nests ray.remote_worker", "nests ray.remote")
    step = ("Async.step ray.remote_worker", "Async.step ray.remote")
    wanted = {("leaf ray.remote_worker", "leaf ray.remote", *above) for above in (nest, step)}
    failing = [(f"{name} ray.remote_worker", f"{name} ray.remote") for name in FAILING]
    wanted |= {nest, step, *failing}
    before = trace.get_tracer_provider()
    sheaf.shutdown()
    sheaf.init(num_cpus=2, log_to_driver=False, _tracing_startup_hook="trace_hook:setup")
    try:
        assert sheaf.get(nests.remote(), timeout=WAIT_S) == 1
        actor = Async.remote()
        assert sheaf.get(actor.step.remote(), timeout=WAIT_S) == 1
        with pytest.raises(ValueError):
            sheaf.get(fails.remote(), timeout=WAIT_S)
        first, behind = streams_and_fails.remote()
        assert sheaf.get(first, timeout=WAIT_S) == 1
        with pytest.raises(ValueError):
            sheaf.get(behind, timeout=WAIT_S)

        wait_until(lambda: wanted <= set(spans_by_path(tmp_path)), lambda: spans_by_path(tmp_path))
        found = spans_by_path(tmp_path)
    finally:
        sheaf.shutdown()
        trace._TRACER_PROVIDER_SET_ONCE._done = False
        trace.set_tracer_provider(before)
    for name, names in zip(FAILING, failing, strict=True):
        assert found[names]["status"]["status_code"] == "ERROR"
        assert found[names]["attributes"]["ray.function"] == name
    assert found[nest]["status"]["status_code"] == "UNSET"


FAILING = ("fails", "streams_and_fails")


@sheaf.remote(num_returns="streaming")
def streams_and_fails():
    yield 1
    raise ValueError("no more")


def test_files_of_spans_follow_no_links(tmp_path):
    precious, folder = tmp_path / "precious", tmp_path / "spans"
    precious.write_text("kept")
    folder.mkdir()
    (folder / "7.json").symlink_to(precious)
    with setup_local_tmp_tracing._own_file(str(folder), "7.json") as file:
        file.write("a span")
    assert (folder / "7.json").read_text() == "a span"
    assert (folder / "7.json").stat().st_mode & 0o777 == 0o600
    with setup_local_tmp_tracing._own_file(str(tmp_path / "new"), "7.json"):
        assert (tmp_path / "new/7.json").exists()
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="link"):
        setup_local_tmp_tracing._own_file(str(tmp_path / "link"), "8.json")
    assert precious.read_text() == "kept"
    assert [file.name for file in folder.iterdir()] == ["7.json"]


@sheaf.remote
def nests():
    return sheaf.get(leaf.remote())


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        ("no_colon", ValueError),
        ("json:", ValueError),
        ("no_such_module:f", ImportError),
        ("json:no_such", AttributeError),
        (7, TypeError),
    ],
)
def test_a_hook_that_names_nothing_is_refused_before_anything_starts(hook, error):
    sheaf.shutdown()
    with pytest.raises(error):
        sheaf.init(_tracing_startup_hook=hook)
    assert not sheaf.is_initialized()


def test_the_package_is_watched_for_and_not_brought():
    import subprocess

    program = "import sys, sheaf; sheaf.init(num_cpus=1); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.stdout.split()[-1:] == [b"False"], done
