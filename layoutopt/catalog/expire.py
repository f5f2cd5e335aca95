"""Expire partitions: drop them from the newest snapshot, without reading a row (SPEC.md, "Expire").

Files stay until a vacuum removes the older snapshots; until then a restore brings the partitions back (the thesis's
2.3.2: old partitions are dropped by their dates).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from layoutopt.catalog.commit import list_plans
from layoutopt.catalog.optimistic_commit import Change, CommitHook, append_snapshot, list_contents, make_next_snapshot
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, parse_plain_value, parse_request, wrong_partition_value
from layoutopt.catalog.paths import new_load_id, plan_path
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import CommitConflictError, NotATableError, SettingError
from layoutopt.model.summary import Report
from layoutopt.model.types import INTEGER_BITS

OPERATION: Final = "expire"
# The points at which ``at`` is called, in order.
EXPIRE_POINTS: Final = ("planned", "before-snapshot", "snapshot-created")

_MICROSECOND: Final = timedelta(microseconds=1)
_TIMES: Final = ("timestamp", "timestamp_ntz")
# The units of plain values whose texts in snapshots are as numpy writes them.
_UNITS: Final = {"date": "D", "timestamp": "us", "timestamp_ntz": "us"}


@dataclass(frozen=True)
class ExpireReport(Report):
    """What was dropped, or with ``dry_run`` would be dropped.

    Attributes:
        snapshot: the newest snapshot, afterwards.
        partitions: the keys of the dropped partitions, in the column's order.
        rows, bytes: of these; a vacuum frees the bytes.
        left: the number of partitions that stay.
    """

    table: str
    snapshot: int
    dry_run: bool
    partitions: tuple[str, ...]
    rows: int
    bytes: int
    left: int


def expire(
    files: TableFiles,
    *,
    partitions: Sequence[str] = (),
    before: str | None = None,
    keep: timedelta | None = None,
    everything: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
    at: CommitHook = lambda point: None,
) -> ExpireReport:
    """Drop partitions in one commit, which reads and writes no rows; without any to drop, commit nothing.

    Args:
        files: the table's folder.
        partitions: those to drop, as texts of ``--partition`` or keys.
        before: drop the partitions whose value is less than this one, in the column's order. NULL is never less.
        keep: drop the partitions that are older than this; of a day, the whole day. The column is a date or timestamp.
        everything: whether no partition may be left.
        dry_run: only report.
        now: the time that ``keep`` counts from; by default the present.
        at: called at each of EXPIRE_POINTS, for tests.

    Raises:
        SettingError: not exactly one of the three is given, the table has no such partition or none at all, a text is
            no value of the column, or no partition would be left.
        NotATableError: the path holds no table, or one that was never loaded.
        CommitConflictError: another commit changed one of the partitions meanwhile.
        CatalogError: the newest snapshot is damaged.
        OSError: the store failed; the table is unchanged.
    """
    if (bool(partitions), before is not None, keep is not None).count(True) != 1:
        raise SettingError("one of --partition, --before and --keep says what is dropped; give exactly one")
    check_is_table(files)
    base = latest_snapshot(files)
    if base is None:
        raise NotATableError(f"the table at {files.root!r} was never loaded; there is nothing to expire")
    if base.partition_by is None:
        raise SettingError(f"the table {files.root!r} has no partitions to expire; use `layoutopt delete` for rows")
    names = PartitionNames.of(base.schema, base.partition_by, base)
    if partitions:
        keys = _find_named(base, names, partitions)
    else:
        cutoff = _parse_cutoff(before, names) if keep is None else _find_cutoff(keep, now or datetime.now(UTC), names)
        keys = _find_before(base, names, cutoff)
    dropped = [entry for key in keys for entry in base.by_key[key]]
    _check_rest(base, keys, everything)
    at("planned")
    number = base.number
    if keys and not dry_run:
        load_id = f"{OPERATION}-{new_load_id()}"

        def after(latest: Snapshot | None) -> Snapshot:
            assert latest is not None, "the table has a snapshot"
            _check_unchanged(base, latest, keys)
            _check_rest(latest, keys, everything)
            return make_next_snapshot(latest, _drop(latest, keys), OPERATION, load_id)

        number = append_snapshot(files, Change(load_id, base, frozenset(), after), at).number
    return ExpireReport(
        files.root,
        number,
        dry_run,
        tuple(keys),
        sum(entry.live_rows for entry in dropped),
        sum(entry.bytes for entry in dropped),
        len(base.by_key) - len(keys),
    )


def _find_named(base: Snapshot, names: PartitionNames, texts: Sequence[str]) -> list[str]:
    """Return the keys of the partitions that texts name; raise SettingError for one that the table lacks."""
    by, keys = str(names.column), dict.fromkeys(base.by_key)
    by_text = {str(entries[0].value): key for key, entries in base.by_key.items() if entries[0].value is not None}
    named: dict[str, None] = {}
    for request in texts:
        text = parse_request(request, by, names.type == "string")
        key = names.key(None) if text is None else by_text.get(text, text)
        if text is not None and key not in keys:
            with suppress(SettingError):  # an equal value may be written otherwise, like 2026-1-5
                key = names.key(parse_plain_value(text, names.type, f"--partition {by}="))
        if key not in keys:
            raise SettingError(f"the table has no partition {request!r}; `layoutopt status` lists them")
        named[key] = None
    return list(named)


def _find_before(base: Snapshot, names: PartitionNames, cutoff: Any) -> list[str]:
    """Return the keys of the partitions whose value is less than a value, in order; never those of unknown values."""
    values = {key: _to_comparable(entries[0], names) for key, entries in base.by_key.items()}
    less = [(value, key) for key, value in values.items() if value is not None and value < cutoff]
    return [key for _, key in sorted(less)]


def _to_comparable(entry: PartitionEntry, names: PartitionNames) -> Any:
    """Return the value of an entry's partition, of a type that sorts as the column does; None for NULL and unknown."""
    text, kind = str(entry.value), _kind(names.type)
    if entry.value is None or (names.type == "timestamp" and not text.endswith("Z")):
        # Texts of older versions are in the loader's zone, but bounds are instants.
        return next(iter(names.value_of(entry)), None)
    if kind in _UNITS:
        return int(np.array(text.removesuffix("Z"), f"datetime64[{_UNITS[kind]}]").astype(np.int64))
    return _PARSERS[kind](text, names.type)


def _kind(type: str) -> str:
    """Return the key of a type in the parsers; raise SettingError for a type without an order that is known here."""
    kind = "integer" if type in INTEGER_BITS else "string" if type.startswith("varchar") else type.partition("(")[0]
    if kind not in _PARSERS:
        raise SettingError(
            f"a partition column of type {type} can't be compared with --before; name its partitions by --partition"
        )
    return kind


def _parse_instant(text: str, type: str) -> int:
    """Return the microseconds since 1970 of a time in ISO 8601, in UTC where it names no zone."""
    moment = datetime.fromisoformat(text.strip())
    if type == "timestamp_ntz" and moment.tzinfo is not None:
        raise ValueError("the column has no time zone")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND


def _parse_plain(text: str, type: str) -> Any:
    return parse_plain_value(text, type, "--before ")


# Values from texts, by kind of type. Texts are compared by their UTF-8 bytes, as Spark compares them.
_PARSERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "date": _parse_plain,
    "integer": _parse_plain,
    "timestamp": _parse_instant,
    "timestamp_ntz": _parse_instant,
    "decimal": lambda text, type: Decimal(text.strip()),
    "string": lambda text, type: text.encode("utf-8"),
}


def _parse_cutoff(before: str | None, names: PartitionNames) -> Any:
    """Return the value that ``--before`` gives; raise SettingError if it is none of the column's type."""
    kind, text = _kind(names.type), str(before)
    try:
        cutoff = _PARSERS[kind](text, names.type)
    except (ValueError, InvalidOperation) as error:
        form = "--before 2026-01-31T12:00" if names.type in _TIMES else "--before VALUE"
        raise wrong_partition_value(text, names.type, form) from error
    if isinstance(cutoff, Decimal) and not cutoff.is_finite():
        raise wrong_partition_value(text, names.type, "--before VALUE")
    return cutoff


def _find_cutoff(keep: timedelta, now: datetime, names: PartitionNames) -> int:
    """Return the first value that is kept; raise SettingError where the column has no dates."""
    if names.type not in ("date", *_TIMES):
        raise SettingError(
            f"--keep needs a partition column of dates or timestamps, but {names.column} is {names.type}; "
            f"give --before with a value of {names.column}"
        )
    try:
        first = now.astimezone(UTC) - keep
    except OverflowError:  # nothing is older than the calendar
        first = datetime.min.replace(tzinfo=UTC)
    since = first - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days if names.type == "date" else since // _MICROSECOND


def _check_rest(snapshot: Snapshot, keys: Collection[str], everything: bool) -> None:
    if keys and not everything and snapshot.by_key.keys() <= set(keys):
        raise SettingError(
            f"all {len(snapshot.by_key)} partitions of the table would be dropped; give --all if no row should be left"
        )


def _check_unchanged(base: Snapshot, latest: Snapshot, keys: Collection[str]) -> None:
    planned_on, current = list_contents(base), list_contents(latest)
    changed = next((key for key in keys if planned_on[key] != current.get(key)), None)
    if changed is not None:
        raise CommitConflictError(
            f"partition {changed!r} was changed by another commit (snapshot {latest.number}) before it was dropped; "
            "nothing was dropped, look at the table, then expire again"
        )


def _drop(latest: Snapshot, keys: Collection[str]) -> Snapshot:
    """Return a snapshot without some partitions; without all, it keeps the newest plan, which names the table."""
    dropped = set(keys)
    left = tuple(entry for entry in latest.partitions if entry.key not in dropped)
    used = {entry.plan for entry in left or latest.partitions}
    known = latest.plans_in_order if left else tuple(digest for digest in latest.plans_in_order if digest in used)[-1:]
    named = {path for entry in left for path in (*entry.catalog_files, plan_path(entry.plan))} or {plan_path(known[-1])}
    return replace(
        latest,
        partitions=left,
        files={path: digest for path, digest in latest.files.items() if path in named},
        plans=list_plans(known, left),
    )
