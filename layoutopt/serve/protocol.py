"""What clients ask for when they have a scan planned: the specification's ``PlanTableScanRequest``, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from layoutopt.serve.filters import Json

# ----------------------------------------------------------------------------------------------------
# What is answered instead of an answer: the error model of Iceberg's REST specification.


@dataclass(eq=False)
class RefusedError(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        type: the specification's name of what is wrong.
        message: one sentence.
    """

    status: int
    type: str
    message: str

    def to_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}


def bad_request(message: str) -> RefusedError:
    """The request is malformed."""
    return RefusedError(400, "BadRequestException", message)


def no_such_namespace(namespace: tuple[str, ...]) -> RefusedError:
    """Nothing is served under that namespace."""
    return RefusedError(404, "NoSuchNamespaceException", f"there is no namespace {'.'.join(namespace)!r:.200}")


def no_such_table(namespace: tuple[str, ...], name: str) -> RefusedError:
    """No table of that name is served."""
    return RefusedError(404, "NoSuchTableException", f"there is no table {'.'.join((*namespace, name))!r:.200}")


def read_only() -> RefusedError:
    """The request would change something."""
    return RefusedError(
        406,
        "UnsupportedOperationException",
        "this catalog only reads: tables are changed by layoutopt's own commands",
    )


def not_authorized() -> RefusedError:
    """The request bears no token, or one that is not known."""
    return RefusedError(401, "NotAuthorizedException", "send a token that this server knows: Bearer TOKEN")


def other_host() -> RefusedError:
    """Without tokens, the request is to another host than this machine."""
    return RefusedError(
        403, "ForbiddenException", "without a token only requests to this machine's own names are answered"
    )


def too_many() -> RefusedError:
    """The server has enough to do."""
    return RefusedError(429, "TooManyRequestsException", "too many requests at once; try again in a second")


def too_slow() -> RefusedError:
    """The body did not come in time."""
    return RefusedError(408, "RequestTimeoutException", "the request's body did not come in time; send it again")


def too_large(most: int) -> RefusedError:
    """The body is longer than the server takes."""
    return RefusedError(413, "RequestEntityTooLargeException", f"the request's body is longer than {most} bytes")


_LARGEST_ID: Final = 2**63 - 1


@dataclass(frozen=True)
class ScanRequest:
    """A scan that is to be planned.

    Attributes:
        snapshot: Iceberg's id of a snapshot, None for the newest.
        filter: Iceberg's expression as JSON, None for none.
        case_sensitive: whether names are to be written as the table has them.
        select: the columns that are asked for, None for all.
        by_pyiceberg: whether it is pyiceberg that asks. It compares what it is told of a date with its own dates, which
            are days since 1970, where the specification has texts; and it takes a column that a file lacks for NULL in
            filters, whatever it is told, unless the column is asked for.
    """

    snapshot: int | None = None
    filter: Json = None
    case_sensitive: bool = True
    select: tuple[str, ...] | None = None
    by_pyiceberg: bool = False


def scan_request(body: bytes, client: str = "") -> ScanRequest:
    """The request that a body is. What it has beside, such as the columns, changes nothing in what is planned.

    Args:
        body: of the request.
        client: as the client calls itself.

    Raises:
        RefusedError: it is no such request, or of a kind that is not planned here.
    """
    try:
        found = json.loads(body or b"{}")
    except RecursionError as error:
        raise bad_request("the request is nested too deep; flatten its filter") from error
    except ValueError as error:
        raise bad_request(f"the request is no JSON ({error})"[:200]) from error
    if not isinstance(found, dict):
        raise bad_request("the request is no JSON object; send one")
    if found.get("start-snapshot-id") is not None or found.get("end-snapshot-id") is not None:
        raise RefusedError(
            406, "UnsupportedOperationException", "incremental scans are not planned; ask for one snapshot"
        )
    snapshot, sensitive = found.get("snapshot-id"), found.get("case-sensitive", True)
    if snapshot is not None and not (_is_whole(snapshot) and 0 < snapshot <= _LARGEST_ID):
        raise bad_request(
            f"the snapshot-id {snapshot!r:.80} is no id of a snapshot; take one from the table's metadata"
        )
    if not isinstance(sensitive, bool):
        raise bad_request(f"case-sensitive is {sensitive!r:.80}; send true or false")
    select = found.get("select")
    if select is not None and not (isinstance(select, list) and all(isinstance(name, str) for name in select)):
        raise bad_request(f"the select {select!r:.80} is no list of columns; send one")
    chosen = None if select is None else tuple(select)
    return ScanRequest(snapshot, found.get("filter"), sensitive, chosen, client.startswith("PyIceberg/"))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
