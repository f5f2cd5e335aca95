"""The server as a process: its socket, its tokens, the folder for its manifests."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvicorn

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import SettingError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.publish.iceberg_metadata import ManifestFolder
from layoutopt.serve.app import LOOPBACK, Limits, application
from layoutopt.serve.catalog import RestCatalog
from layoutopt.serve.tables import Tables, tables_named

_SHORTEST_TOKEN: Final = 16
_LONGEST_END: Final = 60
"""So many seconds may what is under way take when the server is told to end."""


@dataclass(frozen=True)
class Service:
    """What is served, where, and to whom.

    Attributes:
        tables: as :func:`~layoutopt.serve.tables.tables_named` takes them.
        folder: a folder or URL whose tables are served too.
        host, port: where; port 0 is any that is free.
        token_file: a file with the tokens that requests may bear, one a line.
        manifests: a folder or URL for the manifests of clients that plan scans on their own; None for a temporary one.
        history: how many older snapshots clients may ask for.
        limits: how much is taken.
    """

    tables: tuple[str, ...] = ()
    folder: str | None = None
    host: str = "127.0.0.1"
    port: int = 8181
    token_file: Path | None = None
    manifests: str | None = None
    history: int = 0
    limits: Limits = field(default_factory=Limits)


def run(service: Service, say: Callable[[str, Tables], None], log: EventLog = NO_EVENTS) -> None:
    """Serve until the process is told to end (SIGINT or SIGTERM), then answer what is under way.

    Args:
        service: what, where, to whom.
        say: told the URL and the tables once requests are answered.
        log: gets an event for each request.

    Raises:
        SettingError: there is nothing to serve, the address can't be had, or it is open to others without a token.
        NotATableError: what is to be served is no table.
        KeyboardInterrupt: at the end.
    """
    if not service.tables and service.folder is None:
        raise SettingError("there is nothing to serve; name tables, or a folder of tables by --root")
    tokens = tokens_in(service.token_file)
    if not tokens and service.host not in LOOPBACK:
        raise SettingError(
            f"{service.host!r} lets other machines in; give --token-file with a token that they must send"
        )
    tables = Tables(tables_named(service.tables), service.folder, service.history)
    tables.check()
    with _listening(service.host, service.port) as listener, manifest_folder(service.manifests) as manifests:
        catalog = RestCatalog(tables, manifests, service.limits.filter_depth)
        app = application(catalog, tokens, service.limits, log)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_LONGEST_END,
        )
        say(url_of(listener), tables)
        uvicorn.Server(config).run(sockets=[listener])


def url_of(listener: socket.socket) -> str:
    """The URL of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def tokens_in(path: Path | None) -> tuple[str, ...]:
    """The tokens of a file, one a line; none of no file.

    Raises:
        SettingError: the file can't be read, has none, or one that is short enough to be guessed.
    """
    if path is None:
        return ()
    try:
        found = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"the token file {str(path)!r} can't be read ({error}); name another") from error
    if not found or min(map(len, found)) < _SHORTEST_TOKEN:
        raise SettingError(
            f"the token file {str(path)!r} needs a token of at least {_SHORTEST_TOKEN} characters a line; "
            "`openssl rand -hex 32` makes one"
        )
    return found


@contextmanager
def manifest_folder(place: str | None) -> Iterator[ManifestFolder]:
    """A new folder for one server's manifests, below a folder or URL or among temporary files; removed at the end."""
    if place is None:
        temporary = tempfile.mkdtemp(prefix="layoutopt-serve-")
        try:
            yield ManifestFolder(TableFiles(temporary))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    files = TableFiles(f"{place.rstrip('/')}/serve-{uuid.uuid4().hex}")
    if files.local_root is not None:
        files.local_root.mkdir(parents=True)
    try:
        yield ManifestFolder(files)
    finally:
        with suppress(OSError):
            for name in files.list(""):
                files.delete(name)
            files.delete_empty_folders("")


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror  # Python's says it twice
        raise SettingError(f"{host}:{port} can't be listened on ({why}); give another --host or --port") from error
    with listener:
        yield listener
