"""The HTTP side: Iceberg's REST endpoints as an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from layoutopt.errors import LayoutoptError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.serve.catalog import RestCatalog, namespace_of
from layoutopt.serve.protocol import (
    RefusedError,
    bad_request,
    not_authorized,
    other_host,
    read_only,
    scan_request,
    too_large,
    too_many,
    too_slow,
)

# ----------------------------------------------------------------------------------------------------
# What every request passes before it is answered: the limits, the token, and the access log.

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_PATH: Final = 500


@dataclass(frozen=True)
class Limits:
    """How much the server takes.

    Attributes:
        body_bytes: of one request.
        body_seconds: within which a request's body has to come.
        requests: answered or waiting at the same time.
        threads: that plan scans; as many load tables, and as many do all else.
        filter_depth: how deep filters may be nested.
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    requests: int = 256
    threads: int = 4
    filter_depth: int = 200


@dataclass(eq=False)
class Guard:
    """An ASGI application around another.

    Attributes:
        app: what answers.
        tokens: any of which a request has to bear; none lets everybody in who asks this machine by its own name.
        limits: how much is taken.
        log: gets an event ``request`` for each.
    """

    app: ASGIApp
    tokens: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    log: EventLog = NO_EVENTS
    _under_way: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        started = time.perf_counter()
        scope["layoutopt.said"] = {}
        try:
            refused = self._refusal(scope)
            self._under_way += 1
            try:
                app = self.app if refused is None else _refusing(refused)
                await app(scope, receive, answer)
            except Exception:
                if answer.status is None:  # else it was told, and logged
                    raise
            finally:
                self._under_way -= 1
        finally:
            self._write(scope, answer, time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.tokens:
            if not self._knows(headers.get(b"authorization", b"")):
                return not_authorized()
        # A page of the web could ask in its reader's name, under a host name that leads here.
        elif _host(headers.get(b"host", b"").decode("latin-1")) not in LOOPBACK:
            return other_host()
        return too_many() if self._under_way >= self.limits.requests else None

    def _knows(self, header: bytes) -> bool:
        """Whether a header bears one of the tokens; how long that takes tells nothing about them."""
        scheme, _, token = header.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        matches = [hmac.compare_digest(hashlib.sha256(known.encode()).digest(), digest) for known in self.tokens]
        return scheme.lower() == b"bearer" and any(matches)

    def _write(self, scope: Scope, answer: _Answer, seconds: float) -> None:
        client = scope.get("client")
        self.log.write(
            "request",
            method=scope["method"],
            path=scope["path"][:_LONGEST_PATH],
            status=answer.status,
            seconds=round(seconds, 6),
            bytes=answer.bytes,
            client=client[0] if client else None,
            **scope["layoutopt.said"],
        )


@dataclass(eq=False)
class _Answer:
    """Sends an answer on, and notes its status and size."""

    send: Send
    status: int | None = None
    bytes: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
        await self.send(message)


def _host(header: str) -> str:
    """The host that a request is to, without the port.

    >>> _host("[::1]:8181"), _host("localhost")
    ('::1', 'localhost')
    """
    name = header if header.endswith("]") or ":" not in header else header.rpartition(":")[0]
    return name.strip("[]").lower()


def _refusing(refused: RefusedError) -> ASGIApp:
    return JSONResponse(refused.to_json(), refused.status, headers_of(refused))


def headers_of(refused: RefusedError) -> dict[str, str]:
    """The headers that belong to a refusal."""
    if refused.status == 401:
        return {"www-authenticate": "Bearer"}
    return {"retry-after": "1"} if refused.status == 429 else {}


T = TypeVar("T")
_NAMESPACES: Final = "/v1/namespaces"
_NAMESPACE: Final = f"{_NAMESPACES}/{{namespace}}"
_TABLES: Final = f"{_NAMESPACE}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"
_WRITES: Final = {
    _NAMESPACES: ["POST"],
    _NAMESPACE: ["DELETE"],
    f"{_NAMESPACE}/properties": ["POST"],
    _TABLES: ["POST"],
    _TABLE: ["POST", "DELETE"],
    f"{_NAMESPACE}/register": ["POST"],
    "/v1/tables/rename": ["POST"],
    "/v1/transactions/commit": ["POST"],
    f"{_NAMESPACE}/views": ["POST"],
    "/v1/views/rename": ["POST"],
}


def application(
    catalog: RestCatalog, tokens: tuple[str, ...] = (), limits: Limits | None = None, log: EventLog = NO_EVENTS
) -> Guard:
    """The application that serves a catalog.

    Args:
        catalog: what is served.
        tokens: any of which a request has to bear; with none, everybody who asks this machine by its own name may.
        limits: how much is taken.
        log: gets an event ``request`` for each request, ``failure`` for each error that is nobody's request's.
    """
    limits = limits or Limits()
    endpoints = _Endpoints(catalog, limits, log)
    writes = [Route(path, _refuse_write, methods=methods) for path, methods in _WRITES.items()]
    routes = [
        Route("/v1/config", endpoints.config, methods=["GET"]),
        Route(_NAMESPACES, endpoints.namespaces, methods=["GET"]),
        Route(_NAMESPACE, endpoints.namespace, methods=["GET"]),
        Route(_TABLES, endpoints.tables, methods=["GET"]),
        Route(_TABLE, endpoints.table, methods=["GET"]),
        Route(f"{_TABLE}/plan", endpoints.plan, methods=["POST"]),
        *writes,
    ]
    handlers: dict[Any, Any] = {
        RefusedError: endpoints.refused,
        LayoutoptError: endpoints.failed,
        HTTPException: endpoints.not_routed,
        Exception: endpoints.failed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # to a host that the request names
    return Guard(app, tokens, limits, log)


async def _refuse_write(request: Request) -> Response:
    raise read_only()


class _Endpoints:
    """What is answered at each path. Catalogs are read in threads, a few at a time."""

    def __init__(self, catalog: RestCatalog, limits: Limits, log: EventLog) -> None:
        self._catalog, self._limits, self._log = catalog, limits, log
        self._limiters: dict[str, CapacityLimiter] = {}  # which belong to the loop that they are made in

    async def _in_thread(self, work: Callable[[], T], kind: str = "catalog") -> T:
        """What work comes to, done in a thread. No kind of work waits for another: some of it takes seconds."""
        if kind not in self._limiters:
            self._limiters[kind] = CapacityLimiter(self._limits.threads)
        return await to_thread.run_sync(work, limiter=self._limiters[kind])

    async def config(self, request: Request) -> Response:
        return JSONResponse(self._catalog.config())

    async def namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent")
        wanted = namespace_of(parent) if parent else None
        return JSONResponse(await self._in_thread(lambda: self._catalog.namespaces(wanted)))

    async def namespace(self, request: Request) -> Response:
        said = await self._in_thread(lambda: self._catalog.namespace(_namespace(request)))
        return Response(status_code=204) if request.method == "HEAD" else JSONResponse(said)

    async def tables(self, request: Request) -> Response:
        return JSONResponse(await self._in_thread(lambda: self._catalog.table_names(_namespace(request))))

    async def table(self, request: Request) -> Response:
        namespace, name = _namespace(request), request.path_params["table"]
        if request.method == "HEAD":
            await self._in_thread(lambda: self._catalog.exists(namespace, name))
            return Response(status_code=204)
        said = await self._in_thread(lambda: self._catalog.table(namespace, name), "load")
        return Response(said, media_type="application/json")

    async def plan(self, request: Request) -> Response:
        namespace, name = _namespace(request), request.path_params["table"]
        wanted = scan_request(await self._body(request), request.headers.get("user-agent", ""))
        shown, planned = await self._in_thread(lambda: self._catalog.plan(namespace, name, wanted), "plan")
        request.scope["layoutopt.said"].update(
            table=".".join((*namespace, name)),
            snapshot=shown.table.catalog.snapshot.number,
            files=planned.files,
            files_planned=len(planned.paths),
            rows=planned.rows,
            rows_planned=planned.rows_planned,
        )
        return Response(planned.body, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        """The body, if it is not too long, and comes in time."""
        most, parts, length = self._limits.body_bytes, [], 0
        said = request.headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > most:
            raise too_large(most)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in request.stream():
                    length += len(part)
                    if length > most:
                        raise too_large(most)
                    parts.append(part)
        except TimeoutError as error:
            raise too_slow() from error
        except ClientDisconnect as error:
            raise bad_request("the request's body ended early; send all of it") from error
        return b"".join(parts)

    async def refused(self, request: Request, error: RefusedError) -> Response:
        return JSONResponse(error.to_json(), error.status, headers_of(error))

    async def not_routed(self, request: Request, error: HTTPException) -> Response:
        """A path or a method that is not there."""
        kind = {404: "NoSuchEndpointException", 405: "MethodNotAllowedException"}.get(
            error.status_code, "BadRequestException"
        )
        said = f"{request.method} {request.url.path[:200]}: {error.detail}"
        refused = RefusedError(error.status_code, kind, said)
        return JSONResponse(refused.to_json(), refused.status, error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """An error of the table's or ours: only what we say on purpose is told, the rest is logged."""
        ours = isinstance(error, LayoutoptError)
        self._log.write("failure", path=request.url.path[:500], error=type(error).__name__, message=str(error)[:2000])
        message = str(error) if ours else "the request can't be answered; the server's log says why"
        refused = RefusedError(500, type(error).__name__ if ours else "InternalServerError", message)
        return JSONResponse(refused.to_json(), refused.status)


def _namespace(request: Request) -> tuple[str, ...]:
    return namespace_of(request.path_params["namespace"])
