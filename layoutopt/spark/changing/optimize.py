"""Optimize: partitions laid out anew where that pays, the best gain for each byte written first.

A partition is worth writing anew where it lies in several entries (rows were appended) or was loaded by an older plan
than the table's newest. What its queries read of it now is known from the catalog to the byte; what they would read
afterwards is told by the partitions that are as the newest plan wants them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.config.changing import OptimizeSettings
from layoutopt.errors import SettingError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.model.arrays import Floats
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.changing.opened import open_to_change
from layoutopt.spark.changing.rewrite import Place, rewrite
from layoutopt.spark.core.stages import Progress, Stages, silent
from layoutopt.spark.loading.load import LoadReport
from layoutopt.spark.loading.same_rows import content_of_entries, rows_of_entries


@dataclass(frozen=True)
class Candidate:
    """A partition that could be written anew.

    Attributes:
        key: the partition's.
        entries: the loads whose rows it has.
        older_plan: whether any of these is of an older plan.
        bytes: what is written, about.
        gain: the bytes that the plan's queries together read less of it afterwards, about; may be negative.
    """

    key: str
    entries: int
    older_plan: bool
    bytes: int
    gain: float


@dataclass(frozen=True)
class OptimizeReport:
    """What an optimize did.

    Attributes:
        table: its path.
        candidates: partitions that are not as the newest plan wants them, the best gain a byte first.
        chosen: the keys of those that are worth it, and within the budget.
        loads: one a partition that was written, in their order; none in a dry run.
    """

    table: str
    candidates: tuple[Candidate, ...]
    chosen: tuple[str, ...]
    loads: tuple[LoadReport, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def optimize_by(
    spark: SparkSession, settings: OptimizeSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> OptimizeReport:
    """Write partitions anew by the table's newest plan, one commit each; the same command again does the rest.

    Args:
        spark: the session.
        settings: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        SettingError: there is no such partition, or two budgets are given.
        CommitConflictError: somebody else changed a partition meanwhile; those before it are done.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    table, plan = open_to_change(spark, settings.table_path)
    candidates = candidates_of(table, plan)
    chosen = _chosen(table, candidates, settings)
    loads = []
    for number, key in enumerate(() if settings.dry_run else chosen):
        say(f"partition {key}, {number + 1} of {len(chosen)}")
        place = Place(spark, settings.table_path, open_table(settings.table_path), plan)
        loads.append(_write_anew(place, key, Stages(say, log)))
    return OptimizeReport(settings.table_path, tuple(candidates), chosen, tuple(loads))


def candidates_of(table: Table, plan: Plan) -> list[Candidate]:
    """The partitions that lie in several entries, or in one of another plan, the best gain a byte first.

    Args:
        table: at one snapshot.
        plan: the newest.
    """
    entries = table.catalog.partitions
    read, full = _bytes_by_entry(table, plan.queries)
    as_wanted = [_is_as_wanted(table.catalog.snapshot.by_key[entry.key], plan) for entry in entries]
    share = _share_read(read, full, np.array(as_wanted, dtype=np.bool_), plan)
    found = []
    for key, mine in table.catalog.snapshot.by_key.items():
        if _is_as_wanted(mine, plan):
            continue
        places = [entries.index(entry) for entry in mine]
        gain = float(read[places].sum() - share * full[places].sum())
        older = any(entry.plan != plan.digest for entry in mine)
        found.append(Candidate(key, len(mine), older, sum(entry.bytes for entry in mine), round(gain)))
    return sorted(found, key=lambda one: (-one.gain / max(1, one.bytes), one.key))


def _is_as_wanted(entries: Sequence[PartitionEntry], plan: Plan) -> bool:
    return len(entries) == 1 and (entries[0].plan == plan.digest or entries[0].rows == 0)


def _share_read(read: Floats, full: Floats, as_wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], plan: Plan) -> float:
    """What queries read of full scans where a partition is as the plan wants it; as predicted where none is."""
    if full[as_wanted].sum() > 0:
        return float(read[as_wanted].sum() / full[as_wanted].sum())
    return float(plan.predicted.get("bytes_fraction", 1.0))


def _bytes_by_entry(table: Table, queries: Sequence[Query]) -> tuple[Floats, Floats]:
    """The bytes that queries read of each entry, and those of full scans, by their weights, ``float64[n_entries]``."""
    read, full = np.zeros(len(table.catalog.partitions)), np.zeros(len(table.catalog.partitions))
    for query in queries:
        read += query.weight * _read(table, query.filter.root, query.columns)
        full += query.weight * _read(table, TRUE, query.columns)
    return read, full


def _read(table: Table, root: Node, columns: Sequence[str]) -> Floats:
    found = np.zeros(len(table.catalog.partitions))
    for pruned in table.prune(root, columns):
        chosen = pruned.outcome == PruneOutcome.READ
        np.add.at(found, pruned.source.entry_of[chosen], pruned.bytes[chosen])
    return found


def _chosen(table: Table, candidates: Sequence[Candidate], settings: OptimizeSettings) -> tuple[str, ...]:
    """The keys of the partitions to write: what was asked for, or what gains, as far as the budget goes.

    Raises:
        SettingError: there is no such partition, or two budgets are given.
    """
    if settings.budget_bytes is not None and settings.budget_share is not None:
        raise SettingError("--budget-bytes and --budget-share are both given; leave one of them out")
    unknown = [key for key in settings.partition if key not in table.catalog.snapshot.by_key]
    if unknown:
        raise SettingError(f"the table has no partition {unknown[0]!r}; `layoutopt status` lists them")
    asked = [one for one in candidates if not settings.partition or one.key in settings.partition]
    # Entries are joined in any case: what many small files cost is not in the bytes of their columns.
    worth = [one for one in asked if settings.partition or one.entries > 1 or one.gain > 0]
    total = sum(entry.bytes for entry in table.catalog.partitions)
    budget = settings.budget_bytes or (None if settings.budget_share is None else settings.budget_share * total)
    chosen, written = [], 0
    for one in worth:
        if budget is None or written + one.bytes <= budget:
            chosen.append(one.key)
            written += one.bytes
    return tuple(chosen)


def _write_anew(place: Place, key: str, watch: Stages) -> LoadReport:
    """One partition's rows by the newest plan."""
    entries = place.table.catalog.snapshot.by_key[key]
    rows = rows_of_entries(place.spark, place.table, entries)
    sources = {key: entries[0].source} if entries[0].source is not None else {}
    content = content_of_entries(entries)
    return rewrite(place, "optimize", place.values_in(rows), rows, content, watch, sources)
