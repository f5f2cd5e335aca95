"""`python -m jobs.bench ablation`: plans as the thesis's text has them, then one deviation after the other.

A row's plan has the deviation of its name and those of the rows above; the last is the default. Blocks are made and
measured, but not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.table import Table

from jobs.bench.experiment import TRAIN, Experiment
from jobs.bench.steps import Json, Say, Step, key_of, run, spark_when_needed
from jobs.bench.thesis_features import mine_by_thesis
from jobs.bench.tpch import YEAR, tpch_at, year_block_rows
from layoutopt.errors import SettingError, expected_names
from layoutopt.features.weights import SUBSUMED
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import WEIGHTS, ByVectors, Plan, Scheme
from layoutopt.model.predicates import TRUE, Filter

Ablation = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Deviation:
    """A row of a table.

    Attributes:
        name: what differs from the row above.
        method: as `--method` takes it.
        settings: further settings of `plan`.
        text_features: whether features are those of the text.
        subsumed: whether features weigh as in Equation 3.1 while a load makes blocks.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    text_features: bool = False
    subsumed: bool = False


_PLAIN: Final = {"guides": "features", "slices": False, "partitioner": "ward", "row_order": ("none",)}
_SLICED: Final = {**_PLAIN, "slices": True}
_PORTFOLIO: Final = {**_SLICED, "partitioner": "portfolio-low"}
_FEATURES: Final = "features ranked by marginal coverage, with stricter forms"
_WEIGHTS: Final = "marginal weights"


def _list_deviations(
    text_method: str, method: str, further: Sequence[Deviation], last: Sequence[Deviation] = ()
) -> tuple[Deviation, ...]:
    return (
        Deviation("as written", text_method, _PLAIN, text_features=True, subsumed=True),
        Deviation(_FEATURES, text_method, _PLAIN, subsumed=True),
        Deviation(_WEIGHTS, text_method, _PLAIN),
        *further,
        Deviation("slices by ranges of a column", method, _SLICED),
        Deviation("a portfolio of partitioners instead of Ward's method", method, _PORTFOLIO),
        *(
            [Deviation("cuts at values if the hold-out set gains", method, {"row_order": ("none",)})]
            * (method == "sop")
        ),
        Deviation("rows sorted within blocks (default)", method),
    )


_BUDGET: Final = 1.2
CHAPTERS: Final[Mapping[str, tuple[Deviation, ...]]] = {
    "chapter3": _list_deviations(
        "sop", "sop", (), (Deviation("cuts at values if the hold-out set gains", "sop", {"row_order": ("none",)}),)
    ),
    "chapter4": _list_deviations(
        "text-gsop",
        "gsop",
        (
            Deviation("local features ranked by selectivity", "text-gsop-by-selectivity", _PLAIN),
            Deviation("column groups ranked by selectivity, then improved by moves", "gsop", _PLAIN),
        ),
    ),
    "chapter5": _list_deviations("text-gsop-r", "gsop-r", (Deviation("copies for query families", "gsop-r", _PLAIN),)),
}


def run_ablation(scale: float, *, root: Path, chapters: Sequence[str] = (), say: Say = print) -> Ablation:
    """Return by chapter what unseen queries read by each plan; what an earlier run left below `root` is used again.

    Raises:
        SettingError: a scale factor or a chapter that is not known.
    """
    unknown = [name for name in chapters if name not in CHAPTERS]
    if unknown:
        raise SettingError(f"unknown chapter {unknown[0]!r}: {expected_names(unknown[0], CHAPTERS)}")
    with spark_when_needed("layoutopt-ablation") as spark:
        tpch, rows = tpch_at(scale, root, spark), year_block_rows(scale)
        return {
            name: [run(step, say) for step in list_steps(tpch.stream(name), CHAPTERS[name], rows)]
            for name in chapters or CHAPTERS
        }


def list_steps(stream: Experiment, deviations: Sequence[Deviation], block_rows: int) -> list[Step]:
    """Return a step for each deviation."""
    return [
        stream.step(
            f"ablation, {deviation.name}",
            f"{key_of(f'ablation {stream.name} {number}', {**vars(deviation), 'block_rows': block_rows})}.json",
            partial(_measure, stream, deviation, block_rows),
            stream.features(),
        )
        for number, deviation in enumerate(deviations)
    ]


def _measure(stream: Experiment, deviation: Deviation, block_rows: int) -> Json:
    from layoutopt.inspect.evaluate import evaluate

    queries = stream.test_queries()
    (table,) = stream.dry_run([_make_plan(stream, deviation, block_rows)])
    read = evaluate(table, queries).totals
    full = evaluate(table, [replace(query, filter=Filter.of(TRUE)) for query in queries]).totals
    return {
        "deviation": deviation.name,
        "rows": read.rows_scanned / full.rows_scanned,
        "cells": (read.cells_scanned + read.tids_scanned) / full.cells_scanned,
        "bytes": read.bytes_scanned,
        "of_all": read.bytes_scanned / full.bytes_scanned,
    }


def _make_plan(stream: Experiment, deviation: Deviation, block_rows: int) -> Plan:
    from layoutopt.methods.interface import PlanRequest
    from layoutopt.planning.automatic import plan_best

    document = stream.document()
    if deviation.text_features:
        document = _make_text_document(stream, document)
    request = PlanRequest(deviation.method, YEAR, block_rows=block_rows, storage_budget=(_BUDGET,))
    request = replace(request, **deviation.settings)
    plan = plan_best(stream.open_rows, document, request)
    return replace(plan, scheme=_weigh_subsumed(plan.scheme)) if deviation.subsumed else plan


def _make_text_document(stream: Experiment, document: FeaturesDocument) -> FeaturesDocument:
    from layoutopt.features.analysis import read_queries
    from layoutopt.model.requests import AnalyzeRequest

    request = AnalyzeRequest(log=str(stream.log(TRAIN)), table=stream.source.table)
    queries = read_queries(request, document.schema).queries
    return replace(document, features=mine_by_thesis(queries, document.schema, SessionSettings()))


def _weigh_subsumed(scheme: Scheme) -> Scheme:
    """Return the scheme whose features weigh as in Equation 3.1 while a load makes blocks."""
    layouts = []
    for layout in scheme.layouts:
        blocking = layout.blocking
        if isinstance(blocking, ByVectors):
            blocking = replace(blocking, params=(*blocking.params, (WEIGHTS, SUBSUMED)))
        layouts.append(replace(layout, blocking=blocking))
    return Scheme(tuple(layouts))


def ablation_report(ablation: Ablation) -> Group:
    """Tabulate shares of full scans, and what each deviation gains in bytes."""
    return Group(*(part for name, rows in ablation.items() for part in (_make_table(name, rows), "")))


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("deviation", title=f"{name}: what unseen queries read", title_justify="left")
    for heading in ("rows", "cells and tids", "bytes", "of all", "gain in bytes"):
        table.add_column(heading, justify="right")
    for number, row in enumerate(rows):
        gain = f"{100 * (1 - row['bytes'] / rows[number - 1]['bytes']):.1f} %" if number else ""
        shares = [f"{100 * row[unit]:.1f} %" for unit in ("rows", "cells", "of_all")]
        table.add_row(row["deviation"], *shares[:2], f"{row['bytes'] / 1e6:.1f} MB", shares[2], gain)
    return table
