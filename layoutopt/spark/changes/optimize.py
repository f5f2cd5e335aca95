"""Rewrite partitions whose new layout pays off, by falling gain per written byte.

A partition is a candidate if it has several entries, many deleted rows, or another plan than the wanted one. The
wanted plan is the table's newest, a given one, or one for the queries of a recent log. The catalog gives the bytes that
queries read now. What they would read afterwards is estimated from partitions that have the wanted plan, or from a dry
run of a fresh plan. Within a budget, only some layouts of a partition may be rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.config.fields import parse_age
from layoutopt.errors import CommitConflictError, SettingError, expected_names
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.inspect.drift import Prospect, estimate_prospects
from layoutopt.inspect.status import current_plan
from layoutopt.loading.load import LoadBasis, load, run_at_once
from layoutopt.loading.rewrite import rewrite_layouts
from layoutopt.maintenance.candidates import Candidate, gain_curve, sort_by_gain, spend_budget
from layoutopt.maintenance.rewrite_policy import RewriteRule
from layoutopt.model.layout import Plan
from layoutopt.model.requests import DELETED_SHARE, OptimizeRequest
from layoutopt.model.summary import Summarised
from layoutopt.publish.publishing import parse_publications, publish_after
from layoutopt.scan.table import Table, open_own_table
from layoutopt.spark.changes.partial_rewrite import Level, Parts, find_parts
from layoutopt.spark.changes.replan import Target, check_flags, find_target, read_fitting_plan
from layoutopt.spark.changes.spark_change import SparkChange, open_entries_door, open_for_change, open_segments_door
from layoutopt.spark.core.sessions import AnySession
from layoutopt.workload.analyze import check_log
from layoutopt.workload.log import read_log
from layoutopt.writer.task_result import LoadReport

# Gains below this share of a partition's bytes read are within the error of the dry run and are ignored.
LEAST_GAIN: Final = 0.05

# The reason of a rewrite for the queries; the other reasons hold whatever queries gain.
GAINS: Final = "its queries read less"


@dataclass(frozen=True, repr=False)
class OptimizeReport(Summarised):
    """What an optimize did.

    Attributes:
        table: the table's path.
        plan: the digest of the wanted plan.
        bytes: the size of the table.
        candidates: partitions that differ from that plan, by falling gain per byte.
        chosen: the keys of the candidates to rewrite.
        loads: a commit for each rewritten partition; none in a dry run.
        overtaken: the keys of partitions that were skipped since another commit changed them.
        prospects: by partition, the estimates behind the decision (with ``--auto``).
        alone: by key of partial rewrites, the columns of each written layout.
        reasons: by chosen key, why it is rewritten.
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
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Return the gain curve: the written share of the table's bytes, and the share of all gains."""
        return [(written / max(1, self.bytes), gained) for written, gained in gain_curve(self.candidates)]

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        counts = {"candidates": len(self.candidates), "chosen": len(self.chosen), "rewritten": len(self.loads)}
        return {"table": self.table, "plan": self.plan, **counts}

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return {**asdict(self), "curve": self.curve}


def optimize_table(
    spark: AnySession, request: OptimizeRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> OptimizeReport:
    """Rewrite partitions that are worth it, in a commit each; running the command again continues.

    Raises:
        SettingError: there is no such partition, two budgets are given, or a log is missing.
        LogError: the log can't be used.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`, and of publishing.
    """
    if request.dry_run:
        parse_publications(request.table_path, request.publish)  # raises if publishing would fail
        return _optimize(spark, request, say, log)
    with publish_after(request.table_path, request.publish, say, log):
        return _optimize(spark, request, say, log)


def _optimize(spark: AnySession, request: OptimizeRequest, say: Progress, log: EventLog) -> OptimizeReport:
    change = open_for_change(spark, request.table_path, partial(_check_request, request))
    spark, table = change.spark, change.table
    _check(table, request)
    target = find_target(spark, table, change.plan, request, say)
    candidates = find_candidates(table, target)
    selected = [candidate for candidate in candidates if not request.partition or candidate.key in request.partition]
    total = sum(entry.bytes for entry in table.catalog.partitions)
    budget = request.budget_bytes if request.budget_share is None else request.budget_share * total
    forecasts: dict[str, Prospect] = {}
    parts = Parts()
    if request.auto:
        forecasts = _estimate_prospects(table, target, selected, request)
        due = [candidate for candidate in selected if _is_due(candidate, forecasts[candidate.key], request)]
    else:
        if budget is not None or request.curve:
            say("trying partial rewrites")
            parts = find_parts(open_segments_door(spark, request.table_path), table, target, selected, LEAST_GAIN)
            candidates = parts.add_to(candidates)
            selected = selected if budget is None else parts.add_to(selected)
        due = [
            candidate
            for candidate in selected
            if request.partition or find_reason(candidate, request.deleted_share) is not None
        ]
    reasons = {candidate.key: _explain_choice(candidate, request) for candidate in due}
    chosen = spend_budget(due, budget, LEAST_GAIN)
    loads, overtaken = list[LoadReport](), list[str]()

    def rewrite(item: tuple[int, str]) -> None:
        number, key = item
        say(f"partition {key}, {number} of {len(chosen)}")
        part = chosen[key]
        level = None if part is None else parts.levels[key][part.level]
        try:
            load = _rewrite_partition(spark, request.table_path, target.plan, key, level, Stages(say, log))
        except CommitConflictError:
            overtaken.append(key)
            return
        if load is not None:
            loads.append(load)

    run_at_once([] if request.dry_run else list(enumerate(chosen, 1)), rewrite, request.parallel)
    return OptimizeReport(
        table=request.table_path,
        plan=target.plan.digest,
        bytes=total,
        candidates=tuple(candidates),
        chosen=tuple(chosen),
        loads=tuple(sorted(loads, key=lambda load: load.snapshot)),
        overtaken=tuple(sorted(overtaken)),
        prospects=forecasts,
        alone={key: parts.levels[key][part.level].columns for key, part in chosen.items() if part is not None},
        reasons={key: reasons[key] for key in chosen},
    )


def find_candidates(table: Table, target: Target) -> list[Candidate]:
    """Return the partitions that have several entries, deleted rows or another plan, by falling gain per byte.

    Args:
        table: at one snapshot.
        target: the wanted layout.
    """
    reads = target.reads
    read = reads.weights @ reads.read
    expected = reads.weights @ reads.expected(target.shares)
    places = table.catalog.snapshot.places
    candidates = []
    for key, members in table.catalog.snapshot.by_key.items():
        if is_up_to_date(members, target.plan):
            continue
        indexes = [places[entry.name] for entry in members]
        live = sum(entry.live_rows for entry in members) / max(1, sum(entry.rows for entry in members))
        now, then = float(read[indexes].sum()), float(expected[indexes].sum())
        older = any(entry.plan != target.plan.digest for entry in members)
        size = round(sum(entry.bytes for entry in members) * live)
        candidates.append(Candidate(key, len(members), older, size, round(now - then), round(now), 1 - live))
    return sort_by_gain(candidates)


def is_up_to_date(entries: Sequence[PartitionEntry], plan: Plan) -> bool:
    """Return whether a partition is as one load by a plan writes it."""
    if len(entries) != 1 or entries[0].deletes is not None:
        return False
    return entries[0].plan == plan.digest or entries[0].rows == 0


def find_reason(candidate: Candidate, deleted_share: float = DELETED_SHARE) -> str | None:
    """Return why a candidate is rewritten if the budget allows it; None if it is not worth it.

    Args:
        deleted_share: the least share of deleted rows, above 0, that justifies a rewrite.
    """
    # Several entries are always compacted: the cost of small files is not in the bytes of their columns.
    if candidate.entries > 1:
        return f"compacts {candidate.entries} loads"
    if candidate.deleted and candidate.deleted >= deleted_share:
        return f"removes {candidate.deleted:.1%} deleted rows"
    if candidate.older_plan and (candidate.gain > LEAST_GAIN * candidate.read or candidate.parts):
        return GAINS
    return None


def _explain_choice(candidate: Candidate, request: OptimizeRequest) -> str:
    if request.auto:
        return GAINS
    return find_reason(candidate, request.deleted_share) or "named by --partition"


def _check_request(request: OptimizeRequest, table: Table) -> None:
    """Check what needs no session: the request, the plan, and that the log can be read."""
    _check(table, request)
    check_flags(request)
    if request.plan is not None and table.catalog.plans:
        read_fitting_plan(request.plan, current_plan(table.catalog))
    if request.log is not None:
        check_log(read_log(request.log, column=request.column, dialect=request.dialect), request.dialect)


def _check(table: Table, request: OptimizeRequest) -> None:
    if request.budget_bytes is not None and request.budget_share is not None:
        raise SettingError("--budget-bytes and --budget-share are both set; set only one of them")
    unknown = [key for key in request.partition if key not in table.catalog.snapshot.by_key]
    if unknown:
        known = expected_names(unknown[0], table.catalog.snapshot.by_key)
        raise SettingError(f"the table has no partition {unknown[0]!r}: {known}; `layoutopt status` lists them")


def _estimate_prospects(
    table: Table, target: Target, candidates: Sequence[Candidate], request: OptimizeRequest
) -> dict[str, Prospect]:
    assert target.log is not None
    assert target.half_life is not None
    costs = {candidate.key: _write_cost(candidate, request) for candidate in candidates}
    horizon = parse_age(request.horizon)
    return estimate_prospects(table, target.log, target.reads, target.shares, target.half_life, horizon, costs)


def _is_due(candidate: Candidate, prospect: Prospect, request: OptimizeRequest) -> bool:
    return RewriteRule().acts(prospect.loss, _write_cost(candidate, request), prospect.expected)


def _write_cost(candidate: Candidate, request: OptimizeRequest) -> float:
    return request.write_cost * max(1, candidate.bytes)


def _rewrite_partition(
    spark: SparkSession, path: str, plan: Plan, key: str, level: Level | None, watch: Stages
) -> LoadReport | None:
    """Rewrite a partition by a plan, or some of its layouts; return None if it is up to date or removed by now.

    Raises:
        CommitConflictError: another commit changed the partition.
    """
    change = SparkChange(path, open_own_table(path), plan, spark)
    entries = change.table.catalog.snapshot.by_key.get(key, ())
    if not entries or is_up_to_date(entries, plan):
        return None
    if level is not None:
        work = level.rewrite(entries)
        segments_door = open_segments_door(spark, path)
        return segments_door.read(lambda open_rows: rewrite_layouts(change.table, work, open_rows, watch))
    known = change.names.values_of(entries)
    values = change.read_stored_values([key]) if known is None else tuple(known.values())
    basis = LoadBasis(
        snapshot=change.table.catalog.snapshot,
        source=f"the table {path!r}",
        values=None if plan.partition_by is None else values,
        fingerprints={key: entries[0].source} if entries[0].source is not None else {},
        rows={key: sum(entry.live_rows for entry in entries)},
        content=content_of_entries(entries),
        operation="optimize",
    )
    live = [entry for entry in entries if entry.live_rows]
    door = open_entries_door(spark, path)
    return door.read(lambda open_rows: load(open_rows(change.table, plan, live), path, plan, basis, watch))
