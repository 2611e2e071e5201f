# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stores far away that fail for a moment: a server that speaks as much of S3 as Arrow asks for one
file, and refuses as often as the test says."""

import collections
import http.server
import threading
import urllib.parse

import pyarrow as pa
import pytest
import sheaf
from pyarrow import fs
from sheaf import data
from sheaf.data.datasource import filesystems

_BUSY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Store(http.server.ThreadingHTTPServer):
    """Objects by path. `refusals` says how many requests of each method get 503."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.objects, self.refusals = {}, collections.Counter()
        self.lock = threading.Lock()

    @property
    def filesystem(self):
        """That of Arrow, which tries once."""
        return fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.server_port}",
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
            allow_delayed_open=True,
            check_directory_existence_before_creation=True,
        )


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refused(self):
        with self.server.lock:
            if self.server.refusals[self.command] <= 0:
                return False
            self.server.refusals[self.command] -= 1
        self.answer(503, _BUSY if self.command != "HEAD" else b"")
        return True

    @property
    def key(self):
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)

    def do_HEAD(self):
        if self.refused():
            return
        found = self.server.objects.get(self.key)
        if found is None:
            self.answer(404)
        else:
            self.answer(200, Content_Length=str(len(found)))

    def do_GET(self):
        if self.refused():
            return
        if "list-type=2" in self.path:
            self.answer(200, b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
            return
        found = self.server.objects.get(self.key)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        piece = found[int(first) : int(last) + 1 if last else None]
        told = f"bytes {first}-{int(first) + len(piece) - 1}/{len(found)}"
        self.answer(206, piece, Content_Range=told)

    def chunk(self):
        size = int(self.rfile.readline().strip() or b"0", 16)
        body = self.rfile.read(size)
        if size:
            self.rfile.readline()
        return body

    def do_PUT(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self.chunk, b""))
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            size, _, rest = body.partition(b"\r\n")
            body = rest[: int(size.partition(b";")[0], 16)]
        if not self.refused():
            self.server.objects[self.key] = body
            self.answer(200, ETag='"1"')


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=128 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture
def store():
    server = Store()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_what_a_busy_store_refuses_is_read_later(store):
    """More often than another error is tried again."""
    store.objects["/bucket/a.txt"] = b"one\ntwo\n"
    store.refusals.update(HEAD=1, GET=4)
    rows = data.read_text("bucket/a.txt", filesystem=store.filesystem).take_all()
    assert rows == [{"text": "one"}, {"text": "two"}]
    assert not any(store.refusals.values())


def test_what_a_busy_store_refuses_is_written_later(store):
    store.refusals.update(PUT=4)
    data.from_items([{"n": 1}, {"n": 2}]).repartition(1).write_json(
        "bucket/out", filesystem=store.filesystem, try_create_dir=False
    )
    (name,) = (name for name in store.objects if name.endswith(".json"))
    assert name.startswith("/bucket/out/") and store.objects[name] == b'{"n": 1}\n{"n": 2}\n'


def test_errors_that_the_context_names_are_tried_again():
    """By words or expressions, of any class; DataContext.retried_io_errors goes to where files are
    read."""
    context, pauses, calls = data.DataContext.get_current(), [], []

    def fails(error, times=99):
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    assert (
        filesystems.retried(
            lambda: fails(OSError("AWS Error SERVICE_UNAVAILABLE"), 9), "x", pauses.append
        )
        == "done"
    )
    assert [round(pause / (0.1 * 2**i)) for i, pause in enumerate(pauses)] == [1] * 9
    before = context.retried_io_errors
    for words, error, made in (
        ([], pa.ArrowInvalid("the quota is 3 a second"), 1),
        (["quota is"], pa.ArrowInvalid("the quota is 3 a second"), 10),
        ([r"quota is \d"], FileNotFoundError(2, "the quota is 3 a second"), 10),
        (["quota ("], FileNotFoundError(2, "the quota is 3 a second"), 1),
    ):
        calls.clear()
        context.retried_io_errors = words
        try:
            with pytest.raises(type(error)):
                filesystems.retried(lambda: fails(error), "x", pauses.append)
        finally:
            context.retried_io_errors = before
        assert len(calls) == made
