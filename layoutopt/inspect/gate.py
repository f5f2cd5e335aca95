"""Gates for CI: a log must skip enough of a table, and no query family may begin to scan all of it.

The skipped share is that of ``drift``: of the stored rows, weighted by statement. A query scans all if it reads columns
and skips no block. Queries of one family read the same columns and filter by the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from layoutopt.errors import LogError, SettingError, StalePlanError
from layoutopt.features.cross_validation import query_family
from layoutopt.inspect.drift import share_skipped
from layoutopt.inspect.evaluate import Evaluation, QueryEvaluation
from layoutopt.model.query import Query
from layoutopt.model.summary import Report

# How far a mean of shares may be from their exact mean.
_ROUNDING: Final = 1e-9
_Family = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class GatedQuery:
    """A query that fails a gate: its id in the log, its user, the share of rows that it skips, and its text."""

    id: int
    user: str | None
    skipped: float
    sql: str


@dataclass(frozen=True)
class SkippedGate:
    """The share of rows that a user's statements skip, or all statements.

    Attributes:
        user: the user in the log; None for all statements.
        required: the least share.
        skipped: the share that they skip together.
        short: if that is too low, the different queries that skip less, the most costly first.
    """

    user: str | None
    required: float
    skipped: float
    short: tuple[GatedQuery, ...]

    @property
    def is_met(self) -> bool:
        """Whether enough is skipped."""
        return _is_enough(self.skipped, self.required)


@dataclass(frozen=True)
class GateReport(Report):
    """The results of all gates.

    Attributes:
        skipped: one for each required share.
        new_full_scans: a query of each family that scans all blocks, unlike those in the baseline.
    """

    skipped: tuple[SkippedGate, ...]
    new_full_scans: tuple[GatedQuery, ...]

    def check(self) -> None:
        """Raise StalePlanError if a gate is not met."""
        problems = [_describe_skipped(gate) for gate in self.skipped if not gate.is_met]
        if self.new_full_scans:
            problems.append(
                "the whole table is scanned by query families that did not do so in the baseline: "
                f"{len(self.new_full_scans)}, the first by statement {self.new_full_scans[0].id}"
            )
        if problems:
            raise StalePlanError(f"{'; '.join(problems)}; `explain` these queries, or plan again")


def check_gates(
    queries: Sequence[Query],
    evaluation: Evaluation,
    stored_rows: int,
    required: Mapping[str | None, float],
    baseline: Path | None,
) -> GateReport:
    """Return the results of gates for an evaluated log.

    Args:
        queries: the analysed log that was evaluated.
        evaluation: what these read.
        stored_rows: the rows in the table's files.
        required: the least share of rows to skip, by user; by None for all statements.
        baseline: an earlier output of ``evaluate --json``; None to allow new full scans.

    Raises:
        LogError: there are no statements to judge.
        SettingError: the baseline can't be read, or is of another table.
    """
    results = list(zip(queries, evaluation.queries, strict=True))
    gates = tuple(_measure_skipped(results, stored_rows, user, share) for user, share in required.items())
    if baseline is None:
        return GateReport(gates, ())
    known = _read_full_scans(baseline, evaluation.table)
    new: dict[_Family, GatedQuery] = {}
    for query, result in results:
        columns, filtered = query_family(query)
        family = columns, tuple(sorted(filtered))
        if result.is_full_scan and family not in known:
            new.setdefault(family, _gated(query, result, stored_rows))
    return GateReport(gates, tuple(new.values()))


def _measure_skipped(
    results: Sequence[tuple[Query, QueryEvaluation]], stored_rows: int, user: str | None, required: float
) -> SkippedGate:
    judged = [(query, result) for query, result in results if user is None or query.user == user]
    if not judged:
        users = sorted({query.user for query, _ in results if query.user is not None})
        whose = "" if user is None else f" of the user {user!r}; it has {', '.join(users[:10]) or 'no users'}"
        raise LogError(f"the log has no statement on the table{whose}, so --min-skipped can't be judged")
    rows = np.array([result.rows_scanned for _, result in judged], dtype=np.float64)
    weights = np.array([query.weight for query, _ in judged], dtype=np.float64)
    skipped = share_skipped(rows, weights, float(stored_rows))
    short: dict[object, tuple[float, GatedQuery]] = {}
    if not _is_enough(skipped, required):
        for query, result in judged:
            gated = _gated(query, result, stored_rows)
            if gated.skipped < required:
                key = query.filter.root, query.columns
                cost, first = short.get(key, (0.0, gated))
                short[key] = cost + query.weight * (required - gated.skipped), first
    costly = sorted(short.values(), key=lambda item: (-item[0], item[1].id))
    return SkippedGate(user, required, skipped, tuple(gated for _, gated in costly))


def _is_enough(skipped: float, required: float) -> bool:
    return skipped >= required - _ROUNDING


def _gated(query: Query, result: QueryEvaluation, stored_rows: int) -> GatedQuery:
    skipped = share_skipped(np.array([float(result.rows_scanned)]), np.ones(1), float(stored_rows))
    return GatedQuery(query.id, query.user, skipped, query.sql)


def _describe_skipped(gate: SkippedGate) -> str:
    whose = "the log's statements" if gate.user is None else f"the statements of {gate.user!r}"
    count, first = len(gate.short), gate.short[0]
    return (
        f"{whose} skip {gate.skipped:.1%} of the rows, less than the required {gate.required:.1%}: {count} different "
        f"queries skip less, the most costly is statement {first.id} ({first.skipped:.1%})"
    )


def _read_full_scans(baseline: Path, table: str) -> set[_Family]:
    """Return the families of which an earlier evaluation has a full scan."""
    remedy = "make it with `layoutopt evaluate TABLE LOG --json`"
    try:
        value = json.loads(baseline.read_bytes())
        name = value["table"]
        families = {
            (tuple(query["columns"]), tuple(query["filtered"])) for query in value["queries"] if query["full_scan"]
        }
    except OSError as error:
        raise SettingError(f"the baseline {str(baseline)!r} can't be read ({error.strerror}); {remedy}") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SettingError(f"the baseline {str(baseline)!r} is no output of `evaluate --json`; {remedy}") from error
    if name != table:
        raise SettingError(f"the baseline {str(baseline)!r} is of the table {name!r}, not of {table!r}; {remedy}")
    return families
