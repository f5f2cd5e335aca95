"""The HTTP side: Iceberg's REST endpoints as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from layoutopt.errors import LayoutoptError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.serve.catalog import RestCatalog, namespace_of
from layoutopt.serve.guard import Guard, Limits, headers_of
from layoutopt.serve.refusals import RefusedError, bad_request, read_only, too_large, too_slow
from layoutopt.serve.requests import scan_request

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
