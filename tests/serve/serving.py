"""A server in a thread of the test's process, and what clients of it see."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.table import Table

from layoutopt.events import EventLog
from layoutopt.serve.app import Limits, application
from layoutopt.serve.catalog import RestCatalog
from layoutopt.serve.server import listener_url, manifest_folder
from layoutopt.serve.tables import Tables, parse_tables

TOKEN = "0123456789abcdef-the-token"


@dataclass(frozen=True)
class Served:
    """A server that runs.

    Attributes:
        url: where.
        lines: its log so far.
    """

    url: str
    log: io.StringIO

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def client(self, **properties: str) -> Client:
        client = load_catalog("served", type="rest", uri=self.url, **properties)
        assert isinstance(client, Client)
        return client

    def table(self, name: str = "t") -> Table:
        found: Table = self.client().load_table(f"default.{name}")
        return found


@contextmanager
def serving(
    places: Sequence[object] = (),
    folder: object = None,
    tokens: Sequence[str] = (),
    limits: Limits | None = None,
    manifests: str | None = None,
    history: int = 0,
) -> Iterator[Served]:
    """Serves tables while the block runs."""
    limits, log = limits or Limits(), io.StringIO()
    tables = Tables(parse_tables([str(place) for place in places]), None if folder is None else str(folder), history)
    with manifest_folder(manifests) as written, socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        catalog = RestCatalog(tables, written, limits.filter_depth, limits.scan_bytes)
        app = application(catalog, tuple(tokens), limits, EventLog(log))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        try:
            yield Served(listener_url(listener), log)
        finally:
            server.should_exit = True
            thread.join()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error, which has the specification's form."""
        found = json.loads(self.body)["error"]
        assert set(found) == {"message", "type", "code"}
        assert found["code"] == self.status
        assert isinstance(found["message"], str)
        assert isinstance(found["type"], str)
        return dict(found)


def ask(served: Served, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str) -> Answer:
    """One request, its path as it stands."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=30)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if content is not None:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        found = connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
    finally:
        connection.close()


def files_of(table: Table, filter: Any = "true", local: bool = False, **scan: Any) -> set[str]:
    """The names of the files that a scan is planned to read: by the server, or by the client itself."""
    planned = table.scan(row_filter=filter, **scan) if filter != "true" else table.scan(**scan)
    tasks = planned._plan_files_local() if local else planned.plan_files()
    return {task.file.file_path for task in tasks}


def ids_of(table: Table, filter: Any) -> list[int]:
    """The ids of the rows that a scan reads."""
    return sorted(table.scan(row_filter=filter, selected_fields=("id",)).to_arrow()["id"].to_pylist())
