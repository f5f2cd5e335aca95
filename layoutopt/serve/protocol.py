"""Iceberg's REST protocol: the ``PlanTableScanRequest`` of clients, and error responses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from layoutopt.serve.filters import Json

_LARGEST_ID: Final = 2**63 - 1


@dataclass(eq=False)
class RefusedError(Exception):
    """A refused request: the HTTP status, the specification's error type, and a message of one sentence."""

    status: int
    type: str
    message: str

    def to_json(self) -> dict[str, object]:
        """Return the response's body."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}


def bad_request(message: str) -> RefusedError:
    """Return the error of a malformed request."""
    return RefusedError(400, "BadRequestException", message)


def no_such_namespace(namespace: tuple[str, ...]) -> RefusedError:
    """Return the error of an unknown namespace."""
    return RefusedError(404, "NoSuchNamespaceException", f"there is no namespace {'.'.join(namespace)!r:.200}")


def no_such_table(namespace: tuple[str, ...], name: str) -> RefusedError:
    """Return the error of an unknown table."""
    return RefusedError(404, "NoSuchTableException", f"there is no table {'.'.join((*namespace, name))!r:.200}")


@dataclass(frozen=True)
class ScanRequest:
    """A scan to plan.

    Attributes:
        snapshot: the Iceberg id of a snapshot, or None for the newest.
        filter: Iceberg's expression as JSON, or None.
        case_sensitive: whether column names are case-sensitive.
        select: the selected columns, or None for all.
        by_pyiceberg: whether pyiceberg sent it. pyiceberg expects date partition values as days since 1970, where the
            specification has strings, and treats a column that a file lacks as NULL in filters unless it is selected.
    """

    snapshot: int | None = None
    filter: Json = None
    case_sensitive: bool = True
    select: tuple[str, ...] | None = None
    by_pyiceberg: bool = False


def parse_scan_request(body: bytes, client: str = "") -> ScanRequest:
    """Parse a request's body; unused fields are ignored.

    Args:
        body: the body.
        client: the client's user agent.

    Raises:
        RefusedError: it is no scan request, or of an unsupported kind.
    """
    try:
        request = json.loads(body or b"{}")
    except RecursionError as error:
        raise bad_request("the request is nested too deep; flatten its filter") from error
    except ValueError as error:
        raise bad_request(f"the request is no JSON ({error})"[:200]) from error
    if not isinstance(request, dict):
        raise bad_request("the request is no JSON object; send one")
    if request.get("start-snapshot-id") is not None or request.get("end-snapshot-id") is not None:
        raise RefusedError(
            406, "UnsupportedOperationException", "incremental scans are not supported; request one snapshot"
        )
    snapshot, sensitive = request.get("snapshot-id"), request.get("case-sensitive", True)
    is_integer = isinstance(snapshot, int) and not isinstance(snapshot, bool)
    if snapshot is not None and not (is_integer and 0 < snapshot <= _LARGEST_ID):
        raise bad_request(f"the snapshot-id {snapshot!r:.80} is no snapshot id; take one from the table's metadata")
    if not isinstance(sensitive, bool):
        raise bad_request(f"case-sensitive is {sensitive!r:.80}; send true or false")
    select = request.get("select")
    if select is not None and not (isinstance(select, list) and all(isinstance(name, str) for name in select)):
        raise bad_request(f"the select {select!r:.80} is no list of columns; send one")
    columns = None if select is None else tuple(select)
    return ScanRequest(snapshot, request.get("filter"), sensitive, columns, client.startswith("PyIceberg/"))
