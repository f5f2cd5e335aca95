"""Iceberg's REST endpoints as an ASGI application, with limits, tokens and an access log."""

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
from layoutopt.serve.catalog import RestCatalog, split_namespace
from layoutopt.serve.protocol import RefusedError, bad_request, parse_scan_request

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_PATH: Final = 500
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


@dataclass(frozen=True)
class Limits:
    """The limits of the server.

    Attributes:
        body_bytes: of one request's body.
        body_seconds: until a request's body must be complete.
        requests: answered or waiting at the same time.
        threads: that plan scans; as many load tables, and as many do the rest.
        filter_depth: the nesting depth of filters.
        scan_bytes: the compressed bytes that a planned scan may read; None for no limit.
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    requests: int = 256
    threads: int = 4
    filter_depth: int = 200
    scan_bytes: int | None = None


@dataclass(eq=False)
class Guard:
    """Middleware that checks limits and tokens and logs each request.

    Attributes:
        app: the guarded application.
        tokens: the accepted tokens; without any, requests to this machine's own names are accepted.
        limits: the limits.
        log: gets an event ``request`` for each.
    """

    app: ASGIApp
    tokens: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    log: EventLog = NO_EVENTS
    _active: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = _CountedResponse(send)
        started = time.perf_counter()
        scope["layoutopt.event"] = {}
        try:
            refusal = self._find_refusal(scope)
            self._active += 1
            try:
                app = self.app if refusal is None else _refusal_response(refusal)
                await app(scope, receive, response)
            except Exception:
                if response.status is None:  # else the client got an error, which was logged
                    raise
            finally:
                self._active -= 1
        finally:
            self._write_event(scope, response, time.perf_counter() - started)

    def _find_refusal(self, scope: Scope) -> RefusedError | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.tokens:
            if not self._has_token(headers.get(b"authorization", b"")):
                return RefusedError(401, "NotAuthorizedException", "send a token that this server knows: Bearer TOKEN")
        # A web page could send requests from its reader's browser, by a host name that resolves to this machine.
        elif _host(headers.get(b"host", b"").decode("latin-1")) not in LOOPBACK:
            message = "without a token only requests to this machine's own names are answered"
            return RefusedError(403, "ForbiddenException", message)
        if self._active >= self.limits.requests:
            return RefusedError(429, "TooManyRequestsException", "too many requests at once; try again in a second")
        return None

    def _has_token(self, header: bytes) -> bool:
        scheme, _, token = header.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        # In a time that does not depend on the tokens.
        matches = [hmac.compare_digest(hashlib.sha256(known.encode()).digest(), digest) for known in self.tokens]
        return scheme.lower() == b"bearer" and any(matches)

    def _write_event(self, scope: Scope, response: _CountedResponse, seconds: float) -> None:
        client = scope.get("client")
        self.log.write(
            "request",
            method=scope["method"],
            path=scope["path"][:_LONGEST_PATH],
            status=response.status,
            seconds=round(seconds, 6),
            bytes=response.bytes,
            client=client[0] if client else None,
            **scope["layoutopt.event"],
        )


@dataclass(eq=False)
class _CountedResponse:
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


def _refusal_response(refusal: RefusedError) -> Response:
    return JSONResponse(refusal.to_json(), refusal.status, refusal_headers(refusal))


def refusal_headers(refusal: RefusedError) -> dict[str, str]:
    """Return the headers of a refusal."""
    if refusal.status == 401:
        return {"www-authenticate": "Bearer"}
    return {"retry-after": "1"} if refusal.status == 429 else {}


def application(
    catalog: RestCatalog, tokens: tuple[str, ...] = (), limits: Limits | None = None, log: EventLog = NO_EVENTS
) -> Guard:
    """Return the application that serves a catalog.

    Args:
        catalog: the served catalog.
        tokens: as for :class:`Guard`.
        limits: the limits.
        log: gets an event ``request`` for each request, and ``failure`` for each server error.
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
    app.router.redirect_slashes = False  # a redirect would go to a host that the request names
    return Guard(app, tokens, limits, log)


async def _refuse_write(request: Request) -> Response:
    message = "this catalog is read-only; change tables by layoutopt's own commands"
    raise RefusedError(406, "UnsupportedOperationException", message)


class _Endpoints:
    """The endpoints; catalogs are read in a few threads."""

    def __init__(self, catalog: RestCatalog, limits: Limits, log: EventLog) -> None:
        self._catalog, self._limits, self._log = catalog, limits, log
        self._limiters: dict[str, CapacityLimiter] = {}  # bound to the event loop

    async def _in_thread(self, work: Callable[[], T], kind: str = "catalog") -> T:
        """Run work in a thread; each kind has its own threads, since some work takes seconds."""
        if kind not in self._limiters:
            self._limiters[kind] = CapacityLimiter(self._limits.threads)
        return await to_thread.run_sync(work, limiter=self._limiters[kind])

    async def config(self, request: Request) -> Response:
        return JSONResponse(self._catalog.config())

    async def namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent")
        wanted = split_namespace(parent) if parent else None
        return JSONResponse(await self._in_thread(lambda: self._catalog.namespaces(wanted)))

    async def namespace(self, request: Request) -> Response:
        namespace = await self._in_thread(lambda: self._catalog.namespace(_namespace(request)))
        return Response(status_code=204) if request.method == "HEAD" else JSONResponse(namespace)

    async def tables(self, request: Request) -> Response:
        return JSONResponse(await self._in_thread(lambda: self._catalog.table_names(_namespace(request))))

    async def table(self, request: Request) -> Response:
        namespace, name = _namespace(request), request.path_params["table"]
        if request.method == "HEAD":
            await self._in_thread(lambda: self._catalog.exists(namespace, name))
            return Response(status_code=204)
        body = await self._in_thread(lambda: self._catalog.table(namespace, name), "load")
        return Response(body, media_type="application/json")

    async def plan(self, request: Request) -> Response:
        namespace, name = _namespace(request), request.path_params["table"]
        wanted = parse_scan_request(await self._body(request), request.headers.get("user-agent", ""))
        shown, planned = await self._in_thread(lambda: self._catalog.plan(namespace, name, wanted), "plan")
        request.scope["layoutopt.event"].update(
            table=".".join((*namespace, name)),
            snapshot=shown.table.catalog.snapshot.number,
            files=planned.files,
            files_planned=len(planned.paths),
            rows=planned.rows,
            rows_planned=planned.rows_planned,
        )
        return Response(planned.body, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        most, parts, length = self._limits.body_bytes, [], 0
        too_large = RefusedError(413, "RequestEntityTooLargeException", f"the request's body exceeds {most} bytes")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise too_large
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in request.stream():
                    length += len(part)
                    if length > most:
                        raise too_large
                    parts.append(part)
        except TimeoutError as error:
            message = "the request's body did not arrive in time; send it again"
            raise RefusedError(408, "RequestTimeoutException", message) from error
        except ClientDisconnect as error:
            raise bad_request("the request's body ended early; send all of it") from error
        return b"".join(parts)

    async def refused(self, request: Request, error: RefusedError) -> Response:
        return _refusal_response(error)

    async def not_routed(self, request: Request, error: HTTPException) -> Response:
        kind = {404: "NoSuchEndpointException", 405: "MethodNotAllowedException"}.get(
            error.status_code, "BadRequestException"
        )
        refusal = RefusedError(error.status_code, kind, f"{request.method} {request.url.path[:200]}: {error.detail}")
        return JSONResponse(refusal.to_json(), refusal.status, error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Return the message of our own errors; other errors are only logged."""
        is_own = isinstance(error, LayoutoptError)
        self._log.write("failure", path=request.url.path[:500], error=type(error).__name__, message=str(error)[:2000])
        message = str(error) if is_own else "the request failed; the server's log has the error"
        refusal = RefusedError(500, type(error).__name__ if is_own else "InternalServerError", message)
        return JSONResponse(refusal.to_json(), refusal.status)


def _namespace(request: Request) -> tuple[str, ...]:
    return split_namespace(request.path_params["namespace"])
