"""Optimize: partitions laid out anew where that pays, the best gain for each byte written first.

A partition is worth writing anew where it lies in several entries (rows were appended), has many deleted rows in its
files, or lies in another plan than the one that is wanted: the table's newest, a given one, or one for the queries of a
recent log. What queries read of it now is known from the catalog to the byte; what they would read afterwards is told
by the partitions that are as wanted, or by the rehearsal of a fresh plan. Within a budget some layouts of a partition
may be written alone, and the others stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.config.fields import parse_age
from layoutopt.config.settings import OptimizeSettings
from layoutopt.errors import CommitConflictError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.inspect.drift import Prospect, prospects
from layoutopt.inspect.status import DELETED_SHARE
from layoutopt.maintenance.candidates import Candidate, best_first, regained, within
from layoutopt.maintenance.rewrite_policy import Rule
from layoutopt.model.layout import Plan
from layoutopt.publish.publishing import publications_of, published_after
from layoutopt.scan.table import Table, open_own_table
from layoutopt.spark.changes.affected_rows import Place, open_to_change
from layoutopt.spark.changes.partial_rewrite import Alone, Level, Parts, parts_of, write_alone
from layoutopt.spark.changes.replan import Target, target_of
from layoutopt.spark.changes.rewrite import rewrite
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.writer.task_result import LoadReport

LEAST_GAIN: Final = 0.05
"""A gain below this share of what is read of a partition is within the error of the rehearsal, and none."""


@dataclass(frozen=True)
class OptimizeReport:
    """What an optimize did.

    Attributes:
        table: its path.
        plan: the digest of the plan that partitions are written by.
        bytes: of the whole table.
        candidates: partitions that are not as that plan wants them, the best gain a byte first.
        chosen: the keys of those that are worth it, and within the budget.
        alone: by key of those of which only some layouts are to be written, the columns of these.
        loads: one a partition that was written, in their order; none in a dry run.
        overtaken: the keys of those that somebody else changed meanwhile; they were left as those have them.
        prospects: by partition what speaks for writing it, where that was asked (``--auto``).
    """

    table: str
    plan: str
    bytes: int
    candidates: tuple[Candidate, ...]
    chosen: tuple[str, ...]
    loads: tuple[LoadReport, ...] = ()
    overtaken: tuple[str, ...] = ()
    prospects: Mapping[str, Prospect] = field(default_factory=dict)
    alone: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """What is regained over what is written: shares of the table's bytes, and of all that candidates gain."""
        return [(written / max(1, self.bytes), gained) for written, gained in regained(self.candidates)]

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {**asdict(self), "curve": self.curve}


def optimize_by(
    spark: SparkSession, settings: OptimizeSettings, say: Progress = silent, log: EventLog = NO_EVENTS
) -> OptimizeReport:
    """Write partitions anew where that pays, one commit each; the same command again does the rest.

    Args:
        spark: the session.
        settings: of the verb.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        SettingError: there is no such partition, two budgets are given, or a log is missing.
        LogError: the log can't be used.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`, and of publishing.
    """
    if settings.dry_run:
        publications_of(settings.table_path, settings.publish)  # what could not be published is said all the same
        return _optimize(spark, settings, say, log)
    with published_after(settings.table_path, settings.publish, say, log):
        return _optimize(spark, settings, say, log)


def _optimize(spark: SparkSession, settings: OptimizeSettings, say: Progress, log: EventLog) -> OptimizeReport:
    table, newest = open_to_change(spark, settings.table_path)
    _check(table, settings)
    target = target_of(spark, table, newest, settings, say)
    candidates = candidates_of(table, target)
    asked = [one for one in candidates if not settings.partition or one.key in settings.partition]
    budget = _budget(sum(entry.bytes for entry in table.catalog.partitions), settings)
    found: dict[str, Prospect] = {}
    parts = Parts()
    if settings.auto:
        found = _prospects(table, target, asked, settings)
        worth = [one for one in asked if _is_due(one, found[one.key], settings)]
    else:
        if budget is not None or settings.plot is not None:
            say("rehearsing layouts that could be written alone")
            parts = parts_of(spark, table, target, asked, LEAST_GAIN)
            candidates = parts.of(candidates)
            asked = asked if budget is None else parts.of(asked)  # without one, partitions are written whole
        worth = [one for one in asked if settings.partition or is_worth(one, settings.deleted_share)]
    chosen = within(worth, budget, LEAST_GAIN)
    loads, overtaken = [], []
    for number, (key, part) in enumerate(() if settings.dry_run else chosen.items()):
        say(f"partition {key}, {number + 1} of {len(chosen)}")
        level = None if part is None else parts.levels[key][part.level]
        try:
            written = _write(spark, settings.table_path, target.plan, key, level, Stages(say, log))
        except CommitConflictError:
            overtaken.append(key)
            continue
        if written is not None:
            loads.append(written)
    total = sum(entry.bytes for entry in table.catalog.partitions)
    alone = {key: parts.levels[key][part.level].columns for key, part in chosen.items() if part is not None}
    done = tuple(loads), tuple(overtaken)
    return OptimizeReport(
        settings.table_path, target.plan.digest, total, tuple(candidates), tuple(chosen), *done, found, alone
    )


def candidates_of(table: Table, target: Target) -> list[Candidate]:
    """The partitions that lie in several entries, have deleted rows, or another plan, the best gain a byte first.

    Args:
        table: at one snapshot.
        target: what they are to be laid out by.
    """
    reads, entries = target.reads, table.catalog.partitions
    read = reads.weights @ reads.read
    expected = reads.weights @ reads.expected(target.shares)
    found = []
    for key, mine in table.catalog.snapshot.by_key.items():
        if is_as_wanted(mine, target.plan):
            continue
        places = [entries.index(entry) for entry in mine]
        rows, live = (sum(each) for each in zip(*((entry.rows, entry.live_rows) for entry in mine), strict=True))
        left = live / max(1, rows)
        now, then = float(read[places].sum()), float(expected[places].sum())
        older = any(entry.plan != target.plan.digest for entry in mine)
        size = round(sum(entry.bytes for entry in mine) * left)
        found.append(Candidate(key, len(mine), older, size, round(now - then), round(now), 1 - left))
    return best_first(found)


def is_as_wanted(entries: Sequence[PartitionEntry], plan: Plan) -> bool:
    """Whether a partition is what one load by a plan made of it."""
    if len(entries) != 1 or entries[0].deletes is not None:
        return False
    return entries[0].plan == plan.digest or entries[0].rows == 0


def is_worth(one: Candidate, deleted_share: float = DELETED_SHARE) -> bool:
    """Whether to write a candidate anew where the budget has room for it.

    Args:
        one: the candidate.
        deleted_share: of its rows, above 0: from so many deleted ones on it is.
    """
    # Entries are joined in any case: what many small files cost is not in the bytes of their columns.
    if one.entries > 1 or (one.deleted and one.deleted >= deleted_share):
        return True
    return one.older_plan and (one.gain > LEAST_GAIN * one.read or bool(one.parts))


def _check(table: Table, settings: OptimizeSettings) -> None:
    """Refuse settings that are of no use.

    Raises:
        SettingError: there is no such partition, or two budgets are given.
    """
    if settings.budget_bytes is not None and settings.budget_share is not None:
        raise SettingError("--budget-bytes and --budget-share are both given; leave one of them out")
    unknown = [key for key in settings.partition if key not in table.catalog.snapshot.by_key]
    if unknown:
        raise SettingError(f"the table has no partition {unknown[0]!r}; `layoutopt status` lists them")


def _budget(total: int, settings: OptimizeSettings) -> float | None:
    """The bytes that may be written of so many; None where nobody says."""
    return settings.budget_bytes if settings.budget_share is None else settings.budget_share * total


def _prospects(
    table: Table, target: Target, candidates: Sequence[Candidate], settings: OptimizeSettings
) -> dict[str, Prospect]:
    assert target.log is not None
    assert target.half_life is not None
    costs = {one.key: _cost(one, settings) for one in candidates}
    horizon = parse_age(settings.horizon)
    return prospects(table, target.log, target.reads, target.shares, target.half_life, horizon, costs)


def _is_due(one: Candidate, prospect: Prospect, settings: OptimizeSettings) -> bool:
    return Rule().acts(prospect.loss, _cost(one, settings), prospect.expected)


def _cost(one: Candidate, settings: OptimizeSettings) -> float:
    return settings.write_cost * max(1, one.bytes)


def _write(
    spark: SparkSession, path: str, plan: Plan, key: str, level: Level | None, watch: Stages
) -> LoadReport | None:
    """One partition's rows by a plan, or some of its layouts; None where somebody else has done it, or taken it away.

    Raises:
        CommitConflictError: somebody else changed the partition meanwhile.
    """
    place = Place(spark, path, open_own_table(path), plan)
    entries = place.table.catalog.snapshot.by_key.get(key, ())
    if not entries or is_as_wanted(entries, plan):
        return None
    if level is not None:
        (entry,) = level.still_of(entries)
        return write_alone(place, Alone(entry, level.plan, level.kept), watch)
    rows = rows_of_entries(spark, place.table, entries)
    sources = {key: entries[0].source} if entries[0].source is not None else {}
    content = content_of_entries(entries)
    values = place.known_values(entries)
    if values is None:
        values = place.values_in(rows) if content.rows else place.values_of([key])
    return rewrite(place, "optimize", values, rows, content, watch, sources)
