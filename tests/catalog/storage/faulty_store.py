"""A server between s3fs and moto's server that answers some requests as a failing store or network does."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col
from tests.scan.builder import build, building, by_position
from tests.scan.deleting import delete_ids
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

# Answers of the store, as it words them: the HTTP status, its code and its message.
ANSWERS = {
    "slow-down": (503, "SlowDown", "Please reduce your request rate."),
    "internal": (500, "InternalError", "We encountered an internal error. Please try again."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
}
# The other faults: a reset connection, half of a body, and a request that was done but not answered.
FAULTS = (*ANSWERS, "reset", "cut", "unanswered")
# Of a store without conditional writes.
UNCONDITIONAL = (501, "NotImplemented", "A header you provided implies functionality that is not implemented.")
# Those that go by.
TRANSIENT = ("slow-down", "internal", "reset", "cut")


@dataclass
class Fault:
    """A fault of requests whose method and path match ``pattern``: of ``count`` of them after the first ``skipped``."""

    kind: str
    pattern: str
    count: int = 1 << 30
    skipped: int = 0


@dataclass
class FaultyStore:
    """A store's address, the faults that it has now, and the requests that it got."""

    target: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find_fault(self, request: str) -> str | None:
        """Note a request; the kind of its fault, if it has one."""
        with self.lock:
            self.requests.append(request)
            for fault in self.faults:
                if re.search(fault.pattern, request):
                    if fault.skipped:
                        fault.skipped -= 1
                    elif fault.count:
                        fault.count -= 1
                        self.hits += 1
                        return fault.kind
        return None

    @contextmanager
    def fail(self, *faults: Fault) -> Iterator[None]:
        """Have some faults; the requests and hits are counted from the beginning."""
        self.faults[:], self.hits = faults, 0
        self.requests.clear()
        try:
            yield
        finally:
            self.faults.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    store: FaultyStore

    def handle_error(self, request: object, address: object) -> None:
        pass  # a client that went, or the connection that was reset


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.server.store.find_fault(f"{self.command} {self.path}")
        if kind == "conditional" and "If-None-Match" not in self.headers:
            kind = None
        if kind in ANSWERS or kind == "conditional":
            status, code, message = ANSWERS.get(kind, UNCONDITIONAL)
            self._answer(status, {}, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())
            return
        if kind == "reset":
            self._reset()
            return
        connection = http.client.HTTPConnection(*self.server.store.target, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content, headers = answer.read(), dict(answer.getheaders())
        connection.close()
        if kind == "unanswered":
            self._reset()
            return
        self._answer(answer.status, headers, content, cut=kind == "cut")

    def _answer(self, status: int, headers: dict[str, str], content: bytes, cut: bool = False) -> None:
        self.send_response(status)
        kept = {name: value for name, value in headers.items() if name.lower() not in ("connection", "date", "server")}
        if not {name.lower() for name in kept} & {"content-length", "transfer-encoding"}:
            kept["Content-Length"] = str(len(content))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._reset()

    def _reset(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815


@contextmanager
def run_before(target: tuple[str, int]) -> Iterator[tuple[str, FaultyStore]]:
    """Run a faulty store before a server; gives its address."""
    store = FaultyStore(target)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.store = store
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", store
    finally:
        server.shutdown()
        server.server_close()


KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
ROWS = some_rows(120)
DELETED = range(0, 60, 7)
LEFT = ROWS.filter([id not in DELETED for id in ROWS["id"].to_pylist()])


@pytest.fixture(scope="module")
def store() -> Iterator[FaultyStore]:
    """A store behind a faulty network; its driver repeats nothing, so that the package must."""
    s3fs: Any = pytest.importorskip("s3fs", reason="needs the extra s3")
    server: Any = pytest.importorskip("moto.server", reason="needs moto")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    with pytest.MonkeyPatch.context() as patch, run_before(running.get_host_and_port()) as (address, faulty):
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": address, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        s3fs.S3FileSystem.clear_instance_cache()
        with suppress(FileExistsError):  # the servers of a process share their content
            s3fs.S3FileSystem().mkdir("faulty")
        yield faulty
        s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


@pytest.fixture(scope="module")
def table(store: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with a file of every kind."""
    folder = tmp_path_factory.mktemp("faults") / "t"
    index = IndexSpec(Col("kind", "string"), "value-list")
    how = building(SCHEMA, CONDITIONS, partition_by="year", footers=True, blocking=by_position(8), indexes=[index])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.catalog.manifest_writing.MOST_BOUNDS", -1)
        build(folder, ROWS, how)
        delete_ids(str(folder), DELETED)
    s3fs: Any = pytest.importorskip("s3fs", reason="needs the extra s3")
    s3fs.S3FileSystem().put(str(folder), f"faulty/{folder.parent.name}", recursive=True)
    return f"s3://faulty/{folder.parent.name}"
