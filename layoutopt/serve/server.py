"""The server process: its socket, its tokens, and the folder for its manifests."""

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
from layoutopt.serve.tables import Tables, parse_tables

_SHORTEST_TOKEN: Final = 16
# The seconds that pending requests get at shutdown.
_LONGEST_END: Final = 60


@dataclass(frozen=True)
class Service:
    """The settings of a server.

    Attributes:
        tables: as for :func:`~layoutopt.serve.tables.parse_tables`.
        folder: a folder or URL of further tables.
        host, port: the address; port 0 is any free port.
        token_file: a file of accepted tokens, one a line.
        manifests: a folder or URL for the manifests of clients that plan scans themselves; None for a temporary one.
        history: how many older snapshots clients may request.
        limits: the limits.
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
    """Serve until SIGINT or SIGTERM, then finish pending requests.

    Args:
        service: the settings.
        say: gets the URL and the tables once the server is ready.
        log: gets an event for each request.

    Raises:
        SettingError: there is nothing to serve, the address is unavailable, or it is public without a token.
        NotATableError: a served path is no table.
        KeyboardInterrupt: at the end.
    """
    if not service.tables and service.folder is None:
        raise SettingError("there is nothing to serve; name tables, or a folder of tables by --root")
    tokens = read_tokens(service.token_file)
    if not tokens and service.host not in LOOPBACK:
        raise SettingError(
            f"{service.host!r} accepts requests of other machines; give --token-file with a token that they must send"
        )
    tables = Tables(parse_tables(service.tables), service.folder, service.history)
    tables.check()
    with _listen(service.host, service.port) as listener, manifest_folder(service.manifests) as manifests:
        catalog = RestCatalog(tables, manifests, service.limits.filter_depth, service.limits.scan_bytes)
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
        say(listener_url(listener), tables)
        uvicorn.Server(config).run(sockets=[listener])


def listener_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the tokens of a file, one a line; none without a file.

    Raises:
        SettingError: the file can't be read, is empty, or has a token that is too short.
    """
    if path is None:
        return ()
    try:
        tokens = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingError(f"the token file {str(path)!r} can't be read ({reason}); name another") from error
    if not tokens or min(map(len, tokens)) < _SHORTEST_TOKEN:
        raise SettingError(
            f"the token file {str(path)!r} needs a token of at least {_SHORTEST_TOKEN} characters a line; "
            "`openssl rand -hex 32` makes one"
        )
    return tokens


@contextmanager
def manifest_folder(place: str | None) -> Iterator[ManifestFolder]:
    """Yield a new folder for one server's manifests, below ``place`` or a temporary one, and remove it at the end."""
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
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise SettingError(f"{host}:{port} can't be listened on ({reason}); give another --host or --port") from error
    with listener:
        yield listener
