"""What clients ask for when they have a scan planned: the specification's ``PlanTableScanRequest``, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from layoutopt.serve.filters import Json
from layoutopt.serve.refusals import RefusedError, bad_request

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
