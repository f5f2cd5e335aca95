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
    """

    snapshot: int | None = None
    filter: Json = None
    case_sensitive: bool = True


def scan_request(body: bytes) -> ScanRequest:
    """The request that a body is. What it has beside, such as the columns, changes nothing in what is planned.

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
    return ScanRequest(snapshot, found.get("filter"), sensitive)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
