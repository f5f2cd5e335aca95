"""What every request passes before it is answered: the limits, the token, and the access log."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.serve.refusals import RefusedError, not_authorized, other_host, too_many

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
